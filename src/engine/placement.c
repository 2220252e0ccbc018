/* Where weights lie and workers run: options become wishes to region and team. */
#include "base/cpu.h"
#include "base/topology.h"
#include "engine/engine_int.h"

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
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s: \"%s\" is none of %s, %s, %s", option, asked,
                       names[0], names[1], names[2]);
}

avo_status placement_plan(const avo_engine_options *options, engine_plan *plan, avo_error *error) {
    static const char *const huge[] = {"auto", "on", "off"};
    static const char *const numa[] = {"first-touch", "interleave", "off"};
    static const char *const pin[] = {"none", "core", "node"};
    AVO_TRY(choose("huge_pages", options->huge_pages, huge, 3, &plan->huge_pages, error));
    AVO_TRY(choose("numa", options->numa, numa, 3, &plan->numa, error));
    AVO_TRY(choose("pin", options->pin, pin, 3, &plan->pin, error));
    topology topology;
    topology_detect(&topology);
    plan->numa_nodes = topology.nodes;
    if (plan->pin == pin[0] && options->pin == NULL && plan->numa == numa[0] && topology.nodes > 1)
        plan->pin = pin[2]; /* pages on the right node are of use only to workers that stay there */
    plan->team_pin = plan->pin == pin[1]   ? TEAM_PIN_CORE
                     : plan->pin == pin[2] ? TEAM_PIN_NODE
                                           : TEAM_PIN_NONE;
    plan->panels.copy_mapped = plan->huge_pages == huge[1];
    plan->panels.region.huge = plan->huge_pages != huge[2];
    plan->panels.region.lock = options->lock;
    if (plan->numa == numa[1])
        plan->panels.region.interleave = topology.node_mask;
    if (plan->panels.region.huge && huge_pages_under("") == HUGE_PAGES_NONE) {
        plan->panels.region.huge = false;
        plan->huge_pages = "none";
    }
    return AVO_OK;
}
