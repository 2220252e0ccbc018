/* Angles, for all back ends. A row depends on nothing but its own position. */
#include "device/rotary.h"

#include "base/mathd.h"

/* Dynamic NTK past its border: the base grows with the row's own position, as transformers computes
 * it when it decodes token by token. */
static double dynamic_base(const rotary_table *table, uint32_t position) {
    double dims = 2.0 * table->pairs;
    double length = (double)position + 1.0;
    double growth =
        table->dynamic_factor * length / table->dynamic_from - (table->dynamic_factor - 1.0);
    return table->dynamic_base * mathd_power(growth, dims / (dims - 2.0));
}

void rotary_angles(const rotary_table *table, uint32_t position, float *cosine, float *sine) {
    bool dynamic = table->dynamic_from != 0 && position >= table->dynamic_from;
    double base = dynamic ? dynamic_base(table, position) : 0.0;
    double dims = 2.0 * table->pairs;
    for (uint32_t i = 0; i < table->pairs; i++) {
        double frequency = dynamic ? mathd_power(base, -2.0 * i / dims) : table->frequency[i];
        double s;
        double c;
        mathd_sine_cosine((double)position * frequency, &s, &c);
        cosine[i] = (float)(c * table->magnitude);
        sine[i] = (float)(s * table->magnitude);
    }
}
