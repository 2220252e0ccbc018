/* Rules of thumb for the number of drafts. */
#include "spec/controller.h"

#define FADE         0.8f /* of moving averages */
#define RATE_TARGET  0.6f /* accepted of verified drafts */
#define PATIENCE     4    /* proposals that are left out after the first failed try */
#define PATIENCE_MAX 64

void controller_begin(controller *controller, draft_controller kind, uint32_t most) {
    *controller = (struct controller){
        .kind = kind,
        .most = most,
        .wanted = kind == CONTROLLER_COST || kind == CONTROLLER_FIXED ? most : most / 2 + 1,
        .accepted = (float)most / 2,
        .drafted = (float)most / 2,
        .patience = PATIENCE};
}

/* A rule that has come down to none tries one again after a while, ever more rarely. */
uint32_t controller_limit(controller *controller) {
    if (controller->wanted > 0 || ++controller->idle <= controller->patience)
        return controller->wanted;
    controller->idle = 0;
    return 1;
}

static uint32_t clamp(float wanted, uint32_t most) {
    return wanted <= 0.0f ? 0 : wanted >= (float)most ? most : (uint32_t)(wanted + 0.5f);
}

void controller_verified(controller *controller, uint32_t drafted, uint32_t accepted) {
    if (drafted == 0)
        return;
    bool all = accepted == drafted;
    controller->accepted = FADE * controller->accepted + (1 - FADE) * (float)accepted;
    controller->drafted = FADE * controller->drafted + (1 - FADE) * (float)drafted;
    if (accepted > 0)
        controller->patience = PATIENCE;
    else if (controller->patience < PATIENCE_MAX)
        controller->patience *= 2;
    switch (controller->kind) {
    case CONTROLLER_STEP:
        if (all)
            controller->wanted += controller->wanted < controller->most;
        else
            controller->wanted -= controller->wanted > 0;
        break;
    case CONTROLLER_RATE:
        if (controller->accepted >= RATE_TARGET * controller->drafted)
            controller->wanted += controller->wanted < controller->most;
        else
            controller->wanted -= controller->wanted > 0;
        break;
    case CONTROLLER_EMA:
        controller->wanted = accepted == 0 && controller->accepted < 0.2f
                                 ? 0
                                 : clamp(controller->accepted + 1.0f, controller->most);
        break;
    case CONTROLLER_COST:
    case CONTROLLER_FIXED:
    case CONTROLLERS:
        break;
    }
}
