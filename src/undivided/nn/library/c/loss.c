/* Softmax over the vocabulary, its loss and its gradient, a row of logits at a time. */

#include "vectors.h"

/* Whether every label is a column. */
static int are_labels(const int64_t *labels, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        if ((uint64_t)labels[row] >= (uint64_t)width) return 0;
    return 1;
}

/* A row of logits becomes e^(logit - highest), with (smoothing - 1) · total added at its label; `total` is the sum of the
   exponentials. Adds to sums[0] the logarithm of that sum and of e^highest, to sums[1] the label's logit. */
static inline void softmax_row(float *each, int64_t label, int64_t width, float smoothing, float *total, double *sums) {
    float right = each[label], tail[WIDE];
    int64_t even = width / WIDE * WIDE, rest = width - even;
    for (int i = 0; i < WIDE; i++) tail[i] = i < rest ? each[even + i] : -__builtin_inff();
    wide most = load(tail), sum;
    for (int64_t c = 0; c < even; c += WIDE) most = lane_max(load(each + c), most);
    float highest = horizontal_max(most);
    sum = exp_lanes(load(tail) - highest);
    for (int i = 0; i < WIDE; i++) sum[i] = i < rest ? sum[i] : 0.0f;
    for (int i = 0; i < rest; i++) each[even + i] = sum[i];
    for (int64_t c = 0; c < even; c += WIDE) {
        wide power = exp_lanes(load(each + c) - highest);
        store(each + c, power);
        sum += power;
    }
    *total = horizontal_sum(sum);
    each[label] += (smoothing - 1.0f) * *total;
    sums[0] += (double)highest + __builtin_log((double)*total);
    sums[1] += (double)right;
}

int softmax_loss(float *logits, const int64_t *labels, int64_t rows, int64_t width, float smoothing, float *totals, double *sums) {
    if (!are_labels(labels, rows, width)) return BAD_INDEX;
    for (int64_t row = 0; row < rows; row++)
        softmax_row(logits + row * width, labels[row], width, smoothing, totals + row, sums);
    return OK;
}

/* bfloat16 numbers are the upper halves of floats. */
static void from_bfloat16(const uint16_t *from, float *to, int64_t count) {
    float_bits *bits = (float_bits *)to;
    for (int64_t i = 0; i < count; i++) bits[i] = (uint32_t)from[i] << 16;
}

/* To the nearest. */
static void to_bfloat16(const float *from, uint16_t *to, int64_t count) {
    const float_bits *bits = (const float_bits *)from;
    for (int64_t i = 0; i < count; i++) {
        uint32_t number = bits[i], is_nan = (number & 0x7fffffffu) > 0x7f800000u;
        to[i] = (uint16_t)(is_nan ? 0x7fc0u : (number + 0x7fffu + (number >> 16 & 1u)) >> 16);
    }
}

/* The same of bfloat16 numbers: a row at a time is computed with in `scratch`, which has room for one. */
int softmax_loss_bfloat16(uint16_t *logits, const int64_t *labels, int64_t rows, int64_t width, float smoothing, float *totals,
                          double *sums, float *scratch) {
    if (!are_labels(labels, rows, width)) return BAD_INDEX;
    for (int64_t row = 0; row < rows; row++, logits += width) {
        from_bfloat16(logits, scratch, width);
        softmax_row(scratch, labels[row], width, smoothing, totals + row, sums);
        to_bfloat16(scratch, logits, width);
    }
    return OK;
}

/* The logits x and y of two passes become their gradients, smoothing's constant part left out. With p and q their probabilities,
   c the difference of their normalisers: KL(p, q) = p(x - y) - c and KL(q, p) = c - q(x - y); their gradients for x are
   p(x - y - c - KL(p, q)) and p - q. Adds to `sums` both normalisers, both logits of the label, both divergences. */
static void consistent_row(float *x, float *y, float *gap, int64_t label, int64_t width, float smoothing, float kl_weight,
                           double *sums) {
    wide most = load(x), other_most = load(y), sum = {0}, other_sum = {0}, apart = {0}, other_apart = {0};
    for (int64_t i = WIDE; i < width; i += WIDE) most = lane_max(load(x + i), most), other_most = lane_max(load(y + i), other_most);
    float highest = horizontal_max(most), other_highest = horizontal_max(other_most);
    sums[1] += (double)x[label] + (double)y[label];
    for (int64_t i = 0; i < width; i += WIDE) {
        wide one = load(x + i), other = load(y + i), between = one - other;
        one = exp_lanes(one - highest);
        other = exp_lanes(other - other_highest);
        sum += one, other_sum += other, apart += one * between, other_apart += other * between;
        store(x + i, one), store(y + i, other), store(gap + i, between);
    }
    float total = horizontal_sum(sum), other_total = horizontal_sum(other_sum);
    double norm = (double)highest + __builtin_log((double)total);
    double other_norm = (double)other_highest + __builtin_log((double)other_total);
    double c = norm - other_norm, there = (double)(horizontal_sum(apart) / total) - c;
    double back = c - (double)(horizontal_sum(other_apart) / other_total);
    sums[0] += norm + other_norm;
    sums[2] += there + back;
    float level = (float)(0.5 + kl_weight * (1 - c - there)) / total;
    float other_level = (float)(0.5 + kl_weight * (1 + c - back)) / other_total;
    float tilt = kl_weight / total, other_tilt = kl_weight / other_total;
    for (int64_t i = 0; i < width; i += WIDE) {
        wide p = load(x + i), q = load(y + i), between = load(gap + i);
        store(x + i, p * (level + tilt * between) - q * other_tilt);
        store(y + i, q * (other_level - other_tilt * between) - p * tilt);
    }
    x[label] += (smoothing - 1.0f) / 2;
    y[label] += (smoothing - 1.0f) / 2;
}

/* All rows of both passes, float32 or, where `is_bfloat16`, bfloat16. `scratch` has room for three rows, each padded to a
   multiple of 16. */
int consistent_loss(void *first, void *second, const int64_t *labels, int64_t rows, int64_t width, int32_t is_bfloat16,
                    float smoothing, float kl_weight, double *sums, float *scratch) {
    int64_t padded = round_up(width, WIDE);
    void *passes[2] = {first, second};
    if (!are_labels(labels, rows, width)) return BAD_INDEX;
    for (int64_t row = 0; row < rows; row++) {
        for (int i = 0; i < 2; i++) {
            float *to = scratch + i * padded;
            if (is_bfloat16) from_bfloat16((uint16_t *)passes[i] + row * width, to, width);
            else memcpy(to, (float *)passes[i] + row * width, (size_t)width * sizeof(float));
            for (int64_t c = width; c < padded; c++) to[c] = -1e30f; /* next to no probability */
        }
        consistent_row(scratch, scratch + padded, scratch + 2 * padded, labels[row], padded, smoothing, kl_weight, sums);
        for (int i = 0; i < 2; i++) {
            const float *from = scratch + i * padded;
            if (is_bfloat16) to_bfloat16(from, (uint16_t *)passes[i] + row * width, width);
            else memcpy((float *)passes[i] + row * width, from, (size_t)width * sizeof(float));
        }
    }
    return OK;
}
