/* Inside quant/: the codecs of the PANELS layouts, by family. */
#ifndef AVO_QUANT_PANELS_INT_H
#define AVO_QUANT_PANELS_INT_H

#include "quant/panels.h"

/* All 16 lanes as out[k][16]. */
void panels_decode(quant_type type, const uint8_t *panel, size_t k, float *out);
void panels_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_encode_plain(quant_type type, const float *source, size_t rows, size_t k, uint8_t *out);

/* panels_q8.c */
bool panels_q8_bytes(quant_type type, uint64_t k, uint64_t *bytes);
void panels_q8_decode(quant_type type, const uint8_t *panel, size_t k, float *out);
void panels_q8_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_q8_encode(quant_type type, const float *source, size_t rows, size_t k, uint8_t *out);

/* One block of Q8_0 (GGUF's: f16 scale, 32 int8), with the scale chosen as for Q8B. */
void encode_q8_0_block(const float *source, uint8_t *out);

/* panels_q4r.c */
bool panels_q4r_bytes(uint64_t k, uint64_t *bytes);
void panels_q4r_decode(const uint8_t *panel, size_t k, float *out);
void panels_q4r_decode_row(const uint8_t *panel, size_t k, size_t lane, float *out);
void panels_q4r_encode(const float *source, size_t rows, size_t k, uint8_t *out);

#endif
