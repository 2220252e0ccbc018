/* Learning rates over the steps of a run. */
#include "train/optimizer.h"

#include "base/mathd.h"

const char *schedule_name(schedule_kind kind) {
    static const char *const names[] = {"constant", "linear", "cosine"};
    return names[kind];
}

double schedule_rate(const schedule *s, uint64_t step) {
    uint64_t done = step > 0 ? step - 1 : 0;
    if (done < s->warmup)
        return s->rate * ((double)done / (double)s->warmup);
    if (s->kind == SCHEDULE_CONSTANT || s->steps <= s->warmup)
        return s->rate;
    double share = (double)(done - s->warmup) / (double)(s->steps - s->warmup);
    share = share < 1.0 ? share : 1.0;
    double factor = 1.0 - share;
    if (s->kind == SCHEDULE_COSINE) {
        double sine, cosine;
        mathd_sine_cosine(3.14159265358979323846 * share, &sine, &cosine);
        factor = 0.5 * (1.0 + cosine);
    }
    return s->rate * (s->end + (1.0 - s->end) * factor);
}
