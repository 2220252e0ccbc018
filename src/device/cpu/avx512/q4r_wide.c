/* Q4R times 15 or 16 rows, the tile that decodes 16 sequences.
 *
 * On Zen 4 a vpmullw takes its cycle from the vpdpbusd, while logic, shifts and shuffles run on the
 * pipes that those leave idle. So nothing is multiplied here: 128 + multiplier · (number − 8) is
 * the sum, as bytes, of two table entries, one for either half of the number's four bits,
 *
 *   low   128 − 8 · m + b · m   for b = 0…3, the lower two bits
 *   high  4 · m · b             for the upper two
 *
 * and four entries of each row are what a vpshufb has room for: a table is a line, entries of row r
 * at 4·r, fetched by vpermd for 16 rows at once, one for either sign. The instructions that unpack
 * the next two lines stand between the 32 products with these two, also across super-blocks: the
 * core looks too little ahead to mix them by itself. Hence assembly; compilers keep the order only
 * at the price of half the sums in memory.
 *
 * The rows are laid beside one another, so that one address reaches all of them. Per super-block:
 *   64 lines    line n holds k = 4n … 4n + 3 of row r at 4·r
 *   2 lines     −128 · (sum of the row's numbers) of 16 rows; 16 scales
 *
 * One core, k = 2048 and 5632, weights in its caches: 436 GOPS (94 % of vpdpbusd; its float part
 * takes 3 %); tiles of q4r.h, which multiply: 384.
 */
#include "device/cpu/avx512/q4r.h"

#include "device/cpu/avx512/transpose.h"

#define SUPER_BYTES  (MAGNITUDES_AT + 2 * PANEL_LINE_BYTES + Q4R_SUBS * SUB_BYTES)
#define PACKED_LINES (Q4R_SUPER / 4)
#define PACKED_BYTES ((PACKED_LINES + 2) * PANEL_LINE_BYTES)
_Static_assert(SUPER_BYTES == 2240 && PACKED_BYTES == 4224, "the assembly below says so");

/* ---- Rows ---- */

/* The last row again up to 16. */
static void pack_super(const activation_view *x, size_t at, uint8_t *out) {
    size_t subs = q4r_subs(x->k, at);
    for (size_t line = 0; line < subs * (Q4R_SUB / 4); line += TILE_ROWS_MAX) {
        block16 block;
        for (size_t i = 0; i < TILE_ROWS_MAX; i++)
            block[i] = load_line(x->number + tile_row(i, x->rows) * x->stride + at + 4 * line);
        transpose(block);
        for (size_t i = 0; i < TILE_ROWS_MAX; i++)
            _mm512_store_si512(out + (line + i) * PANEL_LINE_BYTES, block[i]);
    }
    int32_t *begin = (int32_t *)(void *)(out + PACKED_LINES * PANEL_LINE_BYTES);
    float *scale = (float *)(void *)(begin + TILE_ROWS_MAX);
    for (size_t i = 0; i < TILE_ROWS_MAX; i++) {
        size_t row = tile_row(i, x->rows);
        const int32_t *sums = x->integer_sum + row * x->sum_stride + at / Q4R_SUB;
        __m512i part = _mm512_maskz_loadu_epi32(lanes_left(subs), sums);
        begin[i] = -BYTE_ZERO * _mm512_reduce_add_epi32(part);
        scale[i] = x->scale[row * x->scale_stride + at / Q4R_SUPER];
    }
}

/* ---- Whole super-blocks ---- */

/* Four bytes c + b · m, b = 0…3. */
#define ENTRY(c, m)                                                                                \
    (((uint32_t)(c)&255u) | ((uint32_t)((c) + (m)) & 255u) << 8 |                                  \
     ((uint32_t)((c) + 2 * (m)) & 255u) << 16 | ((uint32_t)((c) + 3 * (m)) & 255u) << 24)
#define LOW(m)  ENTRY(BYTE_ZERO - NUMBER_ZERO * (m), m)
#define HIGH(m) ENTRY(0, 4 * (m))
#define EACH(entry, sign)                                                                          \
    {                                                                                              \
        entry(0), entry((sign)*1), entry((sign)*2), entry((sign)*3), entry((sign)*4),              \
            entry((sign)*5), entry((sign)*6), entry((sign)*7), entry((sign)*8), entry((sign)*9),   \
            entry((sign)*10), entry((sign)*11), entry((sign)*12), entry((sign)*13),                \
            entry((sign)*14), entry((sign)*15)                                                     \
    }

/* Indexed by magnitude. `first`: where a row's entries begin within its 16 bytes; `bits`: two of a
 * number. */
static const struct {
    uint32_t low[16], low_negative[16], high[16], high_negative[16], first[16], bits[16];
} table __attribute__((aligned(64))) = {
    EACH(LOW, 1),
    EACH(LOW, -1),
    EACH(HIGH, 1),
    EACH(HIGH, -1),
    {0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
     0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c},
    {0x03030303, 0x03030303, 0x03030303, 0x03030303, 0x03030303, 0x03030303, 0x03030303, 0x03030303,
     0x03030303, 0x03030303, 0x03030303, 0x03030303, 0x03030303, 0x03030303, 0x03030303,
     0x03030303},
};

/* zmm0…15   sums of the rows            zmm20, 21  low and high table
 * zmm16, 17 lines that are multiplied   zmm22…26   indices on their way to lines
 * zmm18, 19 those after them            zmm27, 28  table.first, table.bits
 *                                       zmm29      magnitudes */
#define ROW(line, at, row)                                                                         \
    "vpdpbusd " #at "+4*" #row "(%[x])%{1to16%}, %%zmm" #line ", %%zmm" #row "\n\t"
#define TWO(line, at, row, other) ROW(line, at, row) ROW(line, at, other)

/* The line at `numbers` becomes two byte lines. */
#define READ(numbers) "vmovdqa64 " numbers ", %%zmm22\n\t"
#define SHIFT_A       "vpsrlw $2, %%zmm22, %%zmm24\n\t vpandd %%zmm28, %%zmm22, %%zmm23\n\t"
#define SHIFT_B       "vpsrlw $4, %%zmm22, %%zmm25\n\t vpandd %%zmm28, %%zmm24, %%zmm24\n\t"
#define SHIFT_C       "vpsrlw $6, %%zmm22, %%zmm26\n\t vpord %%zmm27, %%zmm23, %%zmm23\n\t"
#define INDEX_A       "vpandd %%zmm28, %%zmm25, %%zmm25\n\t vpord %%zmm27, %%zmm24, %%zmm24\n\t"
#define INDEX_B       "vpandd %%zmm28, %%zmm26, %%zmm26\n\t vpord %%zmm27, %%zmm25, %%zmm25\n\t"
#define INDEX_C       "vpord %%zmm27, %%zmm26, %%zmm26\n\t"
#define LOOK_A(line)  "vpshufb %%zmm23, %%zmm20, %%zmm" #line "\n\t"
#define LOOK_B        "vpshufb %%zmm24, %%zmm21, %%zmm24\n\t"
#define LOOK_C(line)  "vpshufb %%zmm25, %%zmm20, %%zmm" #line "\n\t"
#define LOOK_D        "vpshufb %%zmm26, %%zmm21, %%zmm26\n\t"
#define JOIN(a, line) "vpaddb %%zmm" #a ", %%zmm" #line ", %%zmm" #line "\n\t"

/* The tables of a sub-block. */
#define MAGNITUDES(signs) "vpmovzxbd (%[magnitudes]), %%zmm29\n\t kmovw " signs ", %%k1\n\t"
#define TABLES_A          "vpermd (%[table]), %%zmm29, %%zmm20\n\t"
#define TABLES_B          "vpermd 128(%[table]), %%zmm29, %%zmm21\n\t"
#define TABLES_C          "vpermd 64(%[table]), %%zmm29, %%zmm20%{%%k1%}\n\t"
#define TABLES_D          "vpermd 192(%[table]), %%zmm29, %%zmm21%{%%k1%}\n\t"

/* Multiplies lines a and b while `numbers` become lines c and d. */
#define STAGE(a, b, at, other, numbers, c, d, t0, t1, t2, t3)                                      \
    TWO(a, at, 0, 1)                                                                               \
    READ(numbers)                                                                                  \
    TWO(a, at, 2, 3)                                                                               \
    SHIFT_A TWO(a, at, 4, 5) SHIFT_B TWO(a, at, 6, 7) SHIFT_C TWO(a, at, 8, 9) INDEX_A TWO(        \
        a, at, 10, 11) INDEX_B                                                                     \
    TWO(a, at, 12, 13) INDEX_C                                                                     \
    LOOK_A(c) TWO(a, at, 14, 15) LOOK_B                                                            \
    TWO(b, other, 0, 1) LOOK_C(d) TWO(b, other, 2, 3) LOOK_D                                       \
    TWO(b, other, 4, 5) JOIN(24, c) TWO(b, other, 6, 7) JOIN(26, d) TWO(b, other, 8, 9) t0         \
    TWO(b, other, 10, 11) t1                                                                       \
    TWO(b, other, 12, 13) t2                                                                       \
    TWO(b, other, 14, 15) t3
#define ALL_ROWS ".irp row, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\t"

/* `supers` > 0 of them, from the begin of a panel on. Behind the last one nothing is read: its
 * last stage unpacks the panel's first line again. */
static void add_supers(const uint8_t *panel, const uint8_t *packed, size_t supers, __m512 *sum) {
    const uint8_t *head = panel, *lines = panel + MAGNITUDES_AT + 2 * PANEL_LINE_BYTES;
    const uint8_t *magnitudes = panel + MAGNITUDES_AT, *signs = panel + SIGNS_AT, *next, *address;
    size_t pairs;
    __asm__ volatile(
        "vmovdqa64 256(%[table]), %%zmm27\n\t vmovdqa64 320(%[table]), %%zmm28\n\t"
        /* The first two lines. */
        MAGNITUDES("(%[signs])") TABLES_A TABLES_B TABLES_C TABLES_D READ(
            "(%[lines])") SHIFT_A SHIFT_B SHIFT_C INDEX_A INDEX_B INDEX_C LOOK_A(16)
            LOOK_B LOOK_C(17) LOOK_D JOIN(24, 16) JOIN(
                26,
                17) "1:\n\t" /* a super-block */
        ALL_ROWS "vpbroadcastd 4096+4*\\row(%[x]), %%zmm\\row\n\t .endr\n\t"
                    "lea 2240(%[head]), %[next]\n\t cmp $1, %[supers]\n\t cmove %[panel], "
                    "%[next]\n\t"
                    "mov $8, %[pairs]\n\t"
                    "2:\n\t" /* two sub-blocks */
                    "prefetcht0 2048(%[lines])\n\t prefetcht0 2112(%[lines])\n\t"
                    "prefetcht0 2176(%[lines])\n\t prefetcht0 2240(%[lines])\n\t"
                    "prefetcht1 8192(%[lines])\n\t prefetcht1 8256(%[lines])\n\t"
                    "prefetcht1 8320(%[lines])\n\t prefetcht1 8384(%[lines])\n\t" STAGE(
                        16, 17, 0, 64, "64(%[lines])", 18, 19,
                        MAGNITUDES("2(%[signs])") "vpsrld $4, %%zmm29, %%zmm29\n\t",
                        TABLES_A TABLES_B, TABLES_C,
                        TABLES_D) "add $16, %[magnitudes]\n\t add $4, %[signs]\n\t cmp $1, "
                                  "%[pairs]\n\t"
                                  "lea 64(%[next]), %[address]\n\t cmove %[address], "
                                  "%[magnitudes]\n\t"
                                  "lea 32(%[next]), %[address]\n\t cmove %[address], "
                                  "%[signs]\n\t" STAGE(18, 19, 128, 192, "128(%[lines])", 16, 17, ,
                                                       , , )
                                      STAGE(
                                          16, 17, 256, 320, "192(%[lines])", 18, 19,
                                          MAGNITUDES("(%[signs])"), TABLES_A TABLES_B, TABLES_C,
                                          TABLES_D) "add $256, %[lines]\n\t lea 192(%[next]), "
                                                    "%[address]\n\t cmp $1, %[pairs]\n\t"
                                                    "cmove %[address], %[lines]\n\t" STAGE(
                                                        18, 19, 384, 448, "(%[lines])", 16, 17, , ,
                                                        , ) "add $512, %[x]\n\t dec %[pairs]\n\t "
                                                            "jnz 2b\n\t"
                                                            /* x is at the begins of sums now, the
                                                               scales are behind them. */
                                                            "vcvtph2ps (%[head]), "
                                                            "%%zmm22\n\t" ALL_ROWS
                                                            "vmulps 64+4*\\row(%[x])%{1to16%}, "
                                                            "%%zmm22, %%zmm23\n\t"
                                                            "vcvtdq2ps %%zmm\\row, %%zmm\\row\n\t"
                                                            "vfmadd213ps 64*\\row(%[sum]), "
                                                            "%%zmm23, %%zmm\\row\n\t"
                                                            "vmovaps %%zmm\\row, "
                                                            "64*\\row(%[sum])\n\t .endr\n\t"
                                                            "mov %[next], %[head]\n\t add $128, "
                                                            "%[x]\n\t dec %[supers]\n\t jnz 1b\n\t"
        : [head] "+r"(head), [lines] "+r"(lines), [magnitudes] "+r"(magnitudes),
          [signs] "+r"(signs), [x] "+r"(packed), [supers] "+r"(supers), [next] "=&r"(next),
          [address] "=&r"(address), [pairs] "=&r"(pairs)
        : [panel] "r"(panel), [table] "r"(&table), [sum] "r"(sum)
        : "memory", "cc", "k1", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7",
          "zmm8", "zmm9", "zmm10", "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17",
          "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27",
          "zmm28", "zmm29");
}

/* ---- The last, shorter super-block ---- */

static void add_rest(const uint8_t *super, const uint8_t *packed, size_t subs, __m512 *sum) {
    const __m512i low = _mm512_set1_epi16(15);
    const int32_t *begin =
        (const int32_t *)(const void *)(packed + PACKED_LINES * PANEL_LINE_BYTES);
    const float *scales = (const float *)(const void *)(begin + TILE_ROWS_MAX);
    const uint8_t *lines = super + q4r_lines_at(subs);
    __m512i total[TILE_ROWS_MAX];
    for (int row = 0; row < TILE_ROWS_MAX; row++)
        total[row] = _mm512_set1_epi32(begin[row]);
    for (size_t sub = 0; sub < subs; sub++, lines += SUB_BYTES) {
        __m128i shift = _mm_cvtsi32_si128(sub % 2 != 0 ? 4 : 0);
        __m512i magnitude =
            _mm512_and_si512(_mm512_srl_epi16(q4r_magnitudes(super, sub), shift), low);
        __m512i line[4];
        q4r_read_sub(lines, magnitude, q4r_signs(super, sub), line);
        for (int i = 0; i < 4; i++, packed += PANEL_LINE_BYTES)
            for (int row = 0; row < TILE_ROWS_MAX; row++)
                total[row] = dot_four(total[row], line[i], (const int8_t *)packed + 4 * row);
    }
    for (int row = 0; row < TILE_ROWS_MAX; row++) {
        __m512 both = _mm512_mul_ps(load_halves(super), _mm512_set1_ps(scales[row]));
        sum[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[row]), both, sum[row]);
    }
}

void q4r_wide_run(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    const activation_view *x = call->x;
    size_t supers = x->k / Q4R_SUPER, rest = x->k % Q4R_SUPER;
    uint64_t panel_bytes = 0;
    if (!weight_panel_bytes(call->weight->type, x->k, &panel_bytes))
        return; /* cannot be: the table has no entry for such a type */
    for (size_t at = 0; at < x->k; at += Q4R_SUPER)
        pack_super(x, at, scratch + at / Q4R_SUPER * PACKED_BYTES);
    for (size_t panel = first; panel < last; panel++) {
        const uint8_t *data = call->weight->data + panel * panel_bytes;
        __m512 sum[TILE_ROWS_MAX];
        for (int row = 0; row < TILE_ROWS_MAX; row++)
            sum[row] = _mm512_setzero_ps();
        product_fetch_out(call, panel, 0, x->rows);
        if (supers > 0)
            add_supers(data, scratch, supers, sum);
        if (rest > 0)
            add_rest(data + supers * SUPER_BYTES, scratch + supers * PACKED_BYTES,
                     q4r_subs(rest, 0), sum);
        product_finish(call, panel, 0, x->rows, sum);
    }
}
