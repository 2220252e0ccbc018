/* Where memory lies and workers run: options become requests to region and team. */
#include "base/topology.h"
#include "device/cpu/cpu.h"

#include <string.h>

/* The name among `names`; the first one where nothing was said. */
static avo_status choose(const char *option, const char *asked, const char *const *names,
                         size_t count, const char **out, avo_error *error) {
    *out = names[0];
    if (asked == NULL)
        return AVO_OK;
    for (size_t i = 0; i < count; i++)
        if (strcmp(asked, names[i]) == 0) {
            *out = names[i];
            return AVO_OK;
        }
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s is \"%s\", must be %s, %s or %s", option,
                       asked, names[0], names[1], names[2]);
}

avo_status cpu_place(const device_options *options, cpu_device *cpu, avo_error *error) {
    static const char *const huge[] = {"auto", "on", "off"};
    static const char *const numa[] = {"first-touch", "interleave", "off"};
    static const char *const pin[] = {"none", "core", "node"};
    device_cpu *info = &cpu->base.info.cpu;
    AVO_TRY(choose("huge_pages", options->huge_pages, huge, 3, &info->huge_pages, error));
    AVO_TRY(choose("numa", options->numa, numa, 3, &info->numa, error));
    AVO_TRY(choose("pin", options->pin, pin, 3, &info->pin, error));
    topology topology;
    topology_detect(&topology);
    info->numa_nodes = topology.nodes;
    if (info->pin == pin[0] && options->pin == NULL && info->numa == numa[0] && topology.nodes > 1)
        info->pin = pin[2]; /* pages on the right node are of use only to workers that stay there */
    cpu->pin = info->pin == pin[1]   ? TEAM_PIN_CORE
               : info->pin == pin[2] ? TEAM_PIN_NODE
                                     : TEAM_PIN_NONE;
    cpu->copy_mapped = info->huge_pages == huge[1];
    info->huge = info->huge_pages != huge[2];
    if (info->huge && huge_pages_under("") == HUGE_PAGES_NONE) {
        info->huge = false;
        info->huge_pages = "none";
    }
    info->lock = options->lock;
    cpu->region = (region_options){.huge = info->huge, .lock = info->lock};
    if (info->numa == numa[1])
        cpu->region.interleave = topology.node_mask;
    return AVO_OK;
}
