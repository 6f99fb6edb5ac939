/* Products of rows with weights of 8 bits: xW + b, where W is quantised once per output, and x per row just before.

   A weight is w ≈ q · scale[output], |q| ≤ 127. A row is x ≈ (u − 128) · row_scale, 1 ≤ u ≤ 255, so that unsigned bytes meet signed
   ones, as the VNNI instructions want; what 128 adds is known from the weights alone and taken away again. Sums are exact
   integers, so a row's result does not depend on the rows beside it. */

#include "int8.h"

enum { PANEL = 64, QUAD = INT8_QUAD, TILE = 6 };

/* `outputs` rows of `depth` weights → panels of 64 outputs, in each the bytes of four inputs side by side. `packed` has room for
   whole panels and quads, `scales` and `offsets` (128 times the sum of an output's bytes) for whole panels. */
void int8_pack(const float *weight, int64_t outputs, int64_t depth, int8_t *packed, float *scales, int32_t *offsets) {
    int64_t quads = padded_depth(depth) / QUAD;
    for (int64_t n = 0; n < round_up(outputs, PANEL); n++) {
        const float *row = weight + n * depth;
        float most = 0;
        for (int64_t k = 0; n < outputs && k < depth; k++) {
            float size = __builtin_fabsf(row[k]);
            most = size <= most ? most : size; /* NaN is taken, and stays */
        }
        float scale = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0;
        int32_t sum = 0;
        int8_t *panel = packed + n / PANEL * PANEL * quads * QUAD + n % PANEL * QUAD;
        for (int64_t k = 0; k < quads * QUAD; k++) {
            float q = n < outputs && k < depth ? __builtin_rintf(row[k] * inverse) : 0;
            int8_t byte = q >= -127.0f && q <= 127.0f ? (int8_t)q : 0;
            panel[k / QUAD * PANEL * QUAD + k % QUAD] = byte;
            sum += byte;
        }
        scales[n] = scale;
        offsets[n] = 128 * sum;
    }
}

#ifdef INT8_WORKS
#include <immintrin.h>

/* A row of floats → bytes and a scale. */
static float quantise_row(const float *x, int64_t depth, uint8_t *bytes) {
    __m512 most = _mm512_setzero_ps();
    int64_t even = depth / WIDE * WIDE;
    __mmask16 rest = (__mmask16)((1u << (depth - even)) - 1), no_number = 0;
    for (int64_t k = 0; k < depth; k += WIDE) {
        __m512 some = _mm512_maskz_loadu_ps(k < even ? 0xffff : rest, x + k);
        no_number |= _mm512_cmp_ps_mask(some, some, _CMP_UNORD_Q);
        most = _mm512_max_ps(_mm512_abs_ps(some), most);
    }
    if (no_number) return __builtin_nanf("");
    float largest = _mm512_reduce_max_ps(most);
    __m512 inverse = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0);
    __m512i middle = _mm512_set1_epi32(128);
    for (int64_t k = 0; k < depth; k += WIDE) {
        __mmask16 lanes = k < even ? 0xffff : rest;
        __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + k), inverse)), middle);
        _mm_mask_storeu_epi8(bytes + k, lanes, _mm512_cvtepi32_epi8(q));
    }
    for (int64_t k = depth; k < padded_depth(depth); k++) bytes[k] = 128;
    return largest / 127.0f;
}

/* `rows` (at most TILE) times one panel. */
static inline __attribute__((always_inline)) void tile(const int rows, const uint8_t *bytes, const float *row_scales,
                                                       const int8_t *panel, const float *scales, const int32_t *offsets,
                                                       const float *bias, int64_t depth, int64_t columns, int relu, float *out,
                                                       int64_t out_row) {
    __m512i sums[TILE][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) sums[r][v] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += QUAD, panel += PANEL * QUAD) {
        __m512i weights[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) weights[v] = _mm512_loadu_si512(panel + v * 64);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, bytes + r * depth + k, QUAD);
            __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], x, weights[v]);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        int64_t left = columns - v * WIDE;
        if (left <= 0) break;
        __mmask16 lanes = left >= WIDE ? 0xffff : (__mmask16)((1u << left) - 1);
        __m512i offset = _mm512_loadu_si512(offsets + v * WIDE);
        __m512 scale = _mm512_loadu_ps(scales + v * WIDE);
        __m512 shift = bias ? _mm512_maskz_loadu_ps(lanes, bias + v * WIDE) : _mm512_setzero_ps();
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[r][v], offset));
            __m512 y = _mm512_fmadd_ps(sum, _mm512_mul_ps(scale, _mm512_set1_ps(row_scales[r])), shift);
            if (relu) y = (__m512)lane_max((wide)y, (wide){0});
            _mm512_mask_storeu_ps(out + r * out_row + v * WIDE, lanes, y);
        }
    }
}

/* Rows of `depth` numbers → rows of `outputs`: xW + b, or max(0, xW + b). */
__attribute__((visibility("hidden"))) void int8_multiply(const float *x, int64_t rows, const int8_product *weights, int relu,
                                                           int8_rows room, float *out) {
    int64_t depth = weights->depth, padded = padded_depth(depth), outputs = weights->outputs;
    for (int64_t r = 0; r < rows; r++) room.scales[r] = quantise_row(x + r * depth, depth, room.bytes + r * padded);
    for (int64_t n = 0; n < outputs; n += PANEL) {
        const int8_t *panel = weights->packed + n * padded;
        const float *scales = weights->scales + n, *bias = weights->bias ? weights->bias + n : NULL;
        const int32_t *offsets = weights->offsets + n;
        for (int64_t r = 0; r < rows; r += TILE) {
            const uint8_t *from = room.bytes + r * padded;
            float *to = out + r * outputs + n;
#define ROWS(count) tile(count, from, room.scales + r, panel, scales, offsets, bias, padded, outputs - n, relu, to, outputs)
            switch (rows - r) {
            case 1: ROWS(1); break;
            case 2: ROWS(2); break;
            case 3: ROWS(3); break;
            case 4: ROWS(4); break;
            case 5: ROWS(5); break;
            default: ROWS(6);
            }
#undef ROWS
        }
    }
}

#endif

/* The same for callers outside. `bytes` has room for rows × padded depth, `row_scales` for rows. */
int int8_linear(const float *x, int64_t rows, const int8_product *weights, int32_t relu, uint8_t *bytes, float *row_scales,
                float *out) {
#ifdef INT8_WORKS
    int8_multiply(x, rows, weights, relu, (int8_rows){bytes, row_scales}, out);
    return OK;
#else
    (void)x, (void)rows, (void)weights, (void)relu, (void)bytes, (void)row_scales, (void)out;
    return UNSUPPORTED;
#endif
}
