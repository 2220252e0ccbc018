/* `avocet licenses`: under which terms this program and what it is linked with may be used. */
#include "cli/cli.h"

extern const cli_command command_licenses;

typedef struct license {
    const char *component;
    const char *used_for;
    const char *name; /* SPDX */
    const char *holder;
    const char *summary;
    const char *where;
} license;

static const license licenses[] = {
    {"Avocet", "this program", "MIT", "the Avocet authors",
     "Use, copy, change and sell it freely; keep the notice; no warranty.",
     "the file LICENSE of the source, share/licenses/avocet of an installation"},
    {"PCRE2", "patterns of tokenizers", "BSD-3-Clause",
     "University of Cambridge; Zoltan Herczeg (JIT)",
     "Redistribution with the notice and without endorsement; no warranty.",
     "https://github.com/PCRE2Project/pcre2/blob/master/LICENCE, "
     "/usr/share/doc/libpcre2-8-0/copyright"},
    {"utf8proc", "normalisation of text", "MIT AND Unicode-DFS-2015",
     "Steven G. Johnson, Jiahao Chen, Tony Kelman, Jonas Fonseca and others; Unicode, Inc. (data)",
     "Use, copy and change freely; keep the notices; no warranty.",
     "https://github.com/JuliaStrings/utf8proc/blob/master/LICENSE.md, "
     "/usr/share/doc/libutf8proc2/copyright"},
    {"xxHash", "checksums", "BSD-2-Clause", "Yann Collet",
     "Redistribution with the notice; no warranty.",
     "https://github.com/Cyan4973/xxHash/blob/dev/LICENSE, /usr/share/doc/libxxhash0/copyright"},
    {"libcurl", "avocet pull", "curl", "Daniel Stenberg and many contributors",
     "Use, copy, change and distribute for any purpose; keep the notice; no warranty.",
     "https://curl.se/docs/copyright.html, /usr/share/doc/libcurl4/copyright"},
    {"GNU libmicrohttpd", "avocet serve, linked dynamically", "LGPL-2.1-or-later",
     "Christian Grothoff, Evgeny Grin and others",
     "A program may use it under terms of its own; the library itself stays free and exchangeable.",
     "https://www.gnu.org/software/libmicrohttpd/, /usr/share/doc/libmicrohttpd12/copyright"},
    {"nghttp2", "gRPC of avocet serve", "MIT", "Tatsuhiro Tsujikawa and contributors",
     "Use, change and distribute; keep the notice; no warranty.",
     "https://github.com/nghttp2/nghttp2/blob/master/COPYING, "
     "/usr/share/doc/libnghttp2-14/copyright"},
    {"libseccomp", "the sandbox of avocet serve, linked dynamically", "LGPL-2.1-only",
     "Paul Moore, Red Hat, Inc. and others",
     "A program may use it under terms of its own; the library itself stays free and exchangeable.",
     "https://github.com/seccomp/libseccomp/blob/main/LICENSE, "
     "/usr/share/doc/libseccomp2/copyright"},
    {"GNU C Library", "the C library of Linux, linked dynamically", "LGPL-2.1-or-later",
     "Free Software Foundation, Inc. and others",
     "A program may use it under terms of its own; the library itself stays free and exchangeable.",
     "https://www.gnu.org/licenses/old-licenses/lgpl-2.1.html, /usr/share/doc/libc6/copyright"},
    {"MD4C", "markdown in the chat", "MIT", "Martin Mitáš",
     "Use, change and distribute; keep the notice; no warranty.",
     "https://github.com/mity/md4c/blob/master/LICENSE.md, /usr/share/doc/libmd4c0/copyright"},
    {"ncurses", "the chat's screen, linked dynamically", "MIT-X11",
     "Free Software Foundation, Inc.",
     "Use, change and distribute; keep the notice; no advertising with names; no warranty.",
     "https://invisible-island.net/ncurses/, /usr/share/doc/libncursesw6/copyright"},
    {"OpenSSL", "SHA-256 of downloads (libcrypto), TLS of gRPC (libssl)", "Apache-2.0",
     "The OpenSSL Project Authors",
     "Use, change and distribute; keep notices, state changes; patent grant; no warranty.",
     "https://www.openssl.org/source/license.html, /usr/share/doc/libssl3/copyright"},
    {"zlib", "unpacking of packages", "Zlib", "Jean-loup Gailly and Mark Adler",
     "Use, change and distribute for any purpose; do not misrepresent its origin; no warranty.",
     "https://zlib.net/zlib_license.html, /usr/share/doc/zlib1g/copyright"},
};
#define LICENSE_COUNT (sizeof(licenses) / sizeof(licenses[0]))

static int print_json(void) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_array_begin(w);
    for (size_t i = 0; i < LICENSE_COUNT; i++) {
        json_object_begin(w);
        json_member_string(w, "component", licenses[i].component);
        json_member_string(w, "used_for", licenses[i].used_for);
        json_member_string(w, "license", licenses[i].name);
        json_member_string(w, "holder", licenses[i].holder);
        json_member_string(w, "summary", licenses[i].summary);
        json_member_string(w, "where", licenses[i].where);
        json_end(w);
    }
    json_end(w);
    return cli_json_print(&json);
}

static void print_text(void) {
    for (size_t i = 0; i < LICENSE_COUNT; i++)
        printf("%s (%s): %s\n  Copyright: %s\n  In short:  %s\n  Full text: %s\n\n",
               licenses[i].component, licenses[i].used_for, licenses[i].name, licenses[i].holder,
               licenses[i].summary, licenses[i].where);
    printf("The summaries (\"In short\") do not replace the full texts. libcurl loads further "
           "libraries\n"
           "(ldd lists them). Models have their own licences.\n");
}

static int run(int argc, char **argv) {
    bool json;
    int exit_status;
    if (!options_json_only(&command_licenses, argc, argv, &json, &exit_status))
        return exit_status;
    if (json)
        return print_json();
    print_text();
    return EXIT_GOOD;
}

const cli_command command_licenses = {
    .name = "licenses",
    .summary = "show the licences of this program and its libraries",
    .usage = "avocet licenses [--json]",
    .examples = "avocet licenses",
    .run = run,
};
