/* What training and decoding on a CPU spend between their large matrix products, each in one pass over memory.

   Every function computes with one thread, on float32, and writes only into arrays that the caller gives. Rows are contiguous
   unless a stride says otherwise; strides count floats. A wide vector is 16 floats: the compiler maps it to what the machine has. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WIDE 16
typedef float wide __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef uint32_t bits_of_float __attribute__((may_alias));

static inline int64_t up_to(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

static inline wide load(const float *from) { return *(const wide *)from; }
static inline void store(float *to, wide value) { *(wide *)to = value; }
static inline wide all_of(float value) { return (wide){0} + value; }
static inline wide choose(whole which, wide yes, wide no) { return (wide)(((whole)yes & which) | ((whole)no & ~which)); }
static inline wide larger(wide one, wide other) { return choose(one <= other, other, one); } /* NaN in `one` stays */

static inline float sum_of(wide value) {
    float sum = 0;
    for (int i = 0; i < WIDE; i++) sum += value[i];
    return sum;
}

static inline float largest_of(wide value) {
    float largest = value[0];
    for (int i = 1; i < WIDE; i++) largest = value[i] <= largest ? largest : value[i];
    return largest;
}

/* e^x of numbers up to 0, to within 2 units in the last place; NaN stays NaN, all below -87 give next to nothing. */
static inline wide exponential(wide x) {
    x = choose(x < -87.0f, all_of(-87.0f), x);
    whole exponent = __builtin_convertvector(x * 1.44269504f + 192.5f, whole) - 192; /* the nearest: the sum is positive */
    wide n = __builtin_convertvector(exponent, wide);
    wide r = x - n * 0.693359375f + n * 2.12194440e-4f, p = all_of(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (wide)((exponent + 127) << 23);
}

/* Memory that begins where wide vectors are loaded best. */
static float *zeros(int64_t count) {
    size_t size = (size_t)up_to(count, WIDE) * sizeof(float);
    float *room = aligned_alloc(4 * WIDE, size);
    if (room) memset(room, 0, size);
    return room;
}

/* ---- dropout ----------------------------------------------------------------------------------------------------------- */

/* The random bytes of elements first … first + count of the mask of a seed: 8 a word, words numbered from 1 (SplitMix64).
   `out` has room for 16 more; what is asked for begins where the returned pointer shows. */
static const uint8_t *bytes_of(uint64_t seed, int64_t first, int64_t count, uint8_t *out) {
    int64_t word = first / 8, last = (first + count + 7) / 8;
    for (int64_t i = word; i < last; i++) {
        uint64_t z = seed + (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        memcpy(out + (i - word) * 8, &z, 8);
    }
    return out + (first - word * 8);
}

/* out = Dropout(x) or, where `other` is not NULL, other + Dropout(x): x stays, scaled, where its byte reaches the threshold. */
void dropout(const float *x, const float *other, float *out, int64_t count, uint64_t seed, int32_t threshold, float scale) {
    enum { BLOCK = 4096 };
    uint8_t room[BLOCK + 16];
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t size = count - start < BLOCK ? count - start : BLOCK;
        const uint8_t *bytes = bytes_of(seed, start, size, room);
        const float *from = x + start;
        float *to = out + start;
        if (other)
            for (int64_t i = 0; i < size; i++) to[i] = other[start + i] + (bytes[i] >= threshold ? from[i] * scale : 0.0f);
        else
            for (int64_t i = 0; i < size; i++) to[i] = bytes[i] >= threshold ? from[i] * scale : 0.0f;
    }
}

/* ---- LayerNorm(x + Dropout(y)) ----------------------------------------------------------------------------------------- */

/* `sum` receives x + Dropout(y), `facts` mean and 1/deviation of each row. threshold 0: no dropout. */
void add_norm(const float *x, const float *y, int64_t rows, int64_t width, uint64_t seed, int32_t threshold, float scale,
              const float *gain, const float *shift, float epsilon, float *sum, float *out, float *facts) {
    uint8_t *room = malloc((size_t)width + 16);
    for (int64_t row = 0; row < rows; row++) {
        const float *one = x + row * width, *other = y + row * width;
        float *both = sum + row * width, *result = out + row * width, total = 0, squares = 0;
        if (threshold) {
            const uint8_t *bytes = bytes_of(seed, row * width, width, room);
            for (int64_t i = 0; i < width; i++) both[i] = one[i] + (bytes[i] >= threshold ? other[i] * scale : 0.0f);
        } else {
            for (int64_t i = 0; i < width; i++) both[i] = one[i] + other[i];
        }
        for (int64_t i = 0; i < width; i++) total += both[i];
        float mean = total / (float)width;
        for (int64_t i = 0; i < width; i++) squares += (both[i] - mean) * (both[i] - mean);
        float steep = 1.0f / __builtin_sqrtf(squares / (float)width + epsilon);
        for (int64_t i = 0; i < width; i++) result[i] = (both[i] - mean) * steep * gain[i] + shift[i];
        facts[2 * row] = mean;
        facts[2 * row + 1] = steep;
    }
    free(room);
}

/* Gradients of x, y, gain and shift; those of gain and shift are added to what is there. */
void add_norm_back(const float *grad, const float *sum, const float *facts, int64_t rows, int64_t width, uint64_t seed,
                   int32_t threshold, float scale, const float *gain, float *grad_x, float *grad_y, float *grad_gain,
                   float *grad_shift) {
    uint8_t *room = malloc((size_t)width + 16);
    for (int64_t row = 0; row < rows; row++) {
        const float *above = grad + row * width, *both = sum + row * width;
        float *below = grad_x + row * width, mean = facts[2 * row], steep = facts[2 * row + 1], plain = 0, along = 0;
        for (int64_t i = 0; i < width; i++) {
            float unit = (both[i] - mean) * steep, slope = above[i] * gain[i];
            plain += slope;
            along += slope * unit;
            grad_gain[i] += above[i] * unit;
            grad_shift[i] += above[i];
        }
        plain /= (float)width;
        along /= (float)width;
        for (int64_t i = 0; i < width; i++) {
            float unit = (both[i] - mean) * steep;
            below[i] = (above[i] * gain[i] - plain - unit * along) * steep;
        }
        if (threshold) {
            const uint8_t *bytes = bytes_of(seed, row * width, width, room);
            float *other = grad_y + row * width;
            for (int64_t i = 0; i < width; i++) other[i] = bytes[i] >= threshold ? below[i] * scale : 0.0f;
        }
    }
    free(room);
}

/* ---- max(0, x + bias) -------------------------------------------------------------------------------------------------- */

void bias_relu(float *x, const float *bias, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++) {
            float sum = x[row * width + i] + bias[i];
            x[row * width + i] = sum < 0.0f ? 0.0f : sum;
        }
}

/* The gradient before the non-linearity; that of the bias is added to what is there. */
void bias_relu_back(const float *grad, const float *out, float *below, float *grad_bias, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++) {
            float slope = out[row * width + i] > 0.0f ? grad[row * width + i] : 0.0f;
            below[row * width + i] = slope;
            grad_bias[i] += slope;
        }
}

/* ---- softmax over the vocabulary --------------------------------------------------------------------------------------- */

/* A row of logits becomes e^(logit - highest), with (smoothing - 1) · total added at its label; `total` is the sum of the
   exponentials. Adds to found[0] the logarithm of that sum and of e^highest, to found[1] the label's logit. */
static inline void softmax_row(float *each, int64_t label, int64_t width, float smoothing, float *total, double *found) {
    float right = each[label], tail[WIDE];
    int64_t even = width / WIDE * WIDE, rest = width - even;
    for (int i = 0; i < WIDE; i++) tail[i] = i < rest ? each[even + i] : -__builtin_inff();
    wide most = load(tail), sum;
    for (int64_t c = 0; c < even; c += WIDE) most = larger(load(each + c), most);
    float highest = largest_of(most);
    sum = exponential(load(tail) - highest);
    for (int i = 0; i < WIDE; i++) sum[i] = i < rest ? sum[i] : 0.0f;
    for (int i = 0; i < rest; i++) each[even + i] = sum[i];
    for (int64_t c = 0; c < even; c += WIDE) {
        wide power = exponential(load(each + c) - highest);
        store(each + c, power);
        sum += power;
    }
    *total = sum_of(sum);
    each[label] += (smoothing - 1.0f) * *total;
    found[0] += (double)highest + __builtin_log((double)*total);
    found[1] += (double)right;
}

void softmax_loss(float *logits, const int64_t *labels, int64_t rows, int64_t width, float smoothing, float *totals, double *found) {
    for (int64_t row = 0; row < rows; row++)
        softmax_row(logits + row * width, labels[row], width, smoothing, totals + row, found);
}

/* bfloat16 numbers are the upper halves of floats. */
static void widen(const uint16_t *from, float *to, int64_t count) {
    bits_of_float *bits = (bits_of_float *)to;
    for (int64_t i = 0; i < count; i++) bits[i] = (uint32_t)from[i] << 16;
}

/* To the nearest. */
static void narrow(const float *from, uint16_t *to, int64_t count) {
    const bits_of_float *bits = (const bits_of_float *)from;
    for (int64_t i = 0; i < count; i++) {
        uint32_t number = bits[i], is_nan = (number & 0x7fffffffu) > 0x7f800000u;
        to[i] = (uint16_t)(is_nan ? 0x7fc0u : (number + 0x7fffu + (number >> 16 & 1u)) >> 16);
    }
}

/* The same of bfloat16 numbers: a row at a time is computed with in `room`. */
void softmax_loss_half(uint16_t *logits, const int64_t *labels, int64_t rows, int64_t width, float smoothing, float *totals,
                       double *found, float *room) {
    for (int64_t row = 0; row < rows; row++, logits += width) {
        widen(logits, room, width);
        softmax_row(room, labels[row], width, smoothing, totals + row, found);
        narrow(room, logits, width);
    }
}

/* The logits x and y of two passes become their gradients, smoothing's constant part left out. With p and q their probabilities,
   c the difference of their normalisers: KL(p, q) = p(x - y) - c and KL(q, p) = c - q(x - y); their gradients for x are
   p(x - y - c - KL(p, q)) and p - q. Adds to `found` both normalisers, both logits of the label, both divergences. */
static void consistent_row(float *x, float *y, float *gap, int64_t label, int64_t width, float smoothing, float pull, double *found) {
    wide most = load(x), other_most = load(y), sum = {0}, other_sum = {0}, apart = {0}, other_apart = {0};
    for (int64_t i = WIDE; i < width; i += WIDE) most = larger(load(x + i), most), other_most = larger(load(y + i), other_most);
    float highest = largest_of(most), other_highest = largest_of(other_most);
    found[1] += (double)x[label] + (double)y[label];
    for (int64_t i = 0; i < width; i += WIDE) {
        wide one = load(x + i), other = load(y + i), between = one - other;
        one = exponential(one - highest);
        other = exponential(other - other_highest);
        sum += one, other_sum += other, apart += one * between, other_apart += other * between;
        store(x + i, one), store(y + i, other), store(gap + i, between);
    }
    float total = sum_of(sum), other_total = sum_of(other_sum);
    double norm = (double)highest + __builtin_log((double)total), other_norm = (double)other_highest + __builtin_log((double)other_total);
    double c = norm - other_norm, there = (double)(sum_of(apart) / total) - c, back = c - (double)(sum_of(other_apart) / other_total);
    found[0] += norm + other_norm;
    found[2] += there + back;
    float level = (float)(0.5 + pull * (1 - c - there)) / total, other_level = (float)(0.5 + pull * (1 + c - back)) / other_total;
    float tilt = pull / total, other_tilt = pull / other_total;
    for (int64_t i = 0; i < width; i += WIDE) {
        wide p = load(x + i), q = load(y + i), between = load(gap + i);
        store(x + i, p * (level + tilt * between) - q * other_tilt);
        store(y + i, q * (other_level - other_tilt * between) - p * tilt);
    }
    x[label] += (smoothing - 1.0f) / 2;
    y[label] += (smoothing - 1.0f) / 2;
}

/* All rows of both passes, float32 or, where `half`, bfloat16; `room` is for three rows, each padded to a multiple of 16. */
void consistent_loss(void *first, void *second, const int64_t *labels, int64_t rows, int64_t width, int half, float smoothing,
                     float pull, double *found, float *room) {
    int64_t padded = up_to(width, WIDE);
    void *passes[2] = {first, second};
    for (int64_t row = 0; row < rows; row++) {
        for (int i = 0; i < 2; i++) {
            float *to = room + i * padded;
            if (half) widen((uint16_t *)passes[i] + row * width, to, width);
            else memcpy(to, (float *)passes[i] + row * width, (size_t)width * sizeof(float));
            for (int64_t c = width; c < padded; c++) to[c] = -1e30f; /* next to no probability */
        }
        consistent_row(room, room + padded, room + 2 * padded, labels[row], padded, smoothing, pull, found);
        for (int i = 0; i < 2; i++) {
            const float *from = room + i * padded;
            if (half) narrow(from, (uint16_t *)passes[i] + row * width, width);
            else memcpy((float *)passes[i] + row * width, from, (size_t)width * sizeof(float));
        }
    }
}

/* ---- attention of short sequences -------------------------------------------------------------------------------------- */

/* c = a · b for any number of rows, and columns that are a multiple of 16; element (i, l) of a stands at a[i·across + l·along]. */
#define TILE(ROWS, COLUMNS)                                                                                                    \
    do {                                                                                                                       \
        wide sum[ROWS][COLUMNS];                                                                                               \
        for (int r = 0; r < ROWS; r++)                                                                                         \
            for (int v = 0; v < COLUMNS; v++) sum[r][v] = (wide){0};                                                           \
        for (int64_t l = 0; l < k; l++) {                                                                                      \
            wide right[COLUMNS];                                                                                               \
            for (int v = 0; v < COLUMNS; v++) right[v] = load(b + l * ldb + j + v * WIDE);                                     \
            for (int r = 0; r < ROWS; r++)                                                                                     \
                for (int v = 0; v < COLUMNS; v++) sum[r][v] += a[(i + r) * across + l * along] * right[v];                     \
        }                                                                                                                      \
        for (int r = 0; r < ROWS; r++)                                                                                         \
            for (int v = 0; v < COLUMNS; v++) store(c + (i + r) * ldc + j + v * WIDE, sum[r][v]);                              \
    } while (0)

static inline void product(const float *restrict a, int64_t across, int64_t along, const float *restrict b, int64_t ldb,
                           float *restrict c, int64_t ldc, int64_t m, int64_t k, int64_t n) {
    int64_t i, j = 0;
    for (; j + 2 * WIDE <= n; j += 2 * WIDE) {
        for (i = 0; i + 6 <= m; i += 6) TILE(6, 2);
        for (; i + 2 <= m; i += 2) TILE(2, 2);
        if (i < m) TILE(1, 2);
    }
    if (j < n) {
        for (i = 0; i + 8 <= m; i += 8) TILE(8, 1);
        for (; i + 4 <= m; i += 4) TILE(4, 1);
        for (; i < m; i++) TILE(1, 1);
    }
}

typedef struct {
    float *at;
    int64_t batch, row, head; /* strides */
} heads;

typedef struct {
    int64_t batch, heads, queries, keys, width, value_width; /* both widths: multiples of 16 */
    const uint8_t *mask;                                     /* NULL: all may attend */
    int64_t mask_batch, mask_row;
    float scale;
} shape;

static inline float *head_of(const heads *all, int64_t b, int64_t h) { return all->at + b * all->batch + h * all->head; }

/* All heads of a sentence at once: they lie side by side, and what is written in single numbers must not be read at once in
   wide vectors, which would wait for each. */
static void turn(const float *from, int64_t row, int64_t rows, int64_t width, int64_t padded, float *to) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++) to[i * padded + r] = from[r * row + i];
}

/* keys × queries: 0 where a query may attend to a key, -inf elsewhere; queries that are none may. */
static void bars(const shape *s, int64_t b, int64_t T, float *to) {
    const uint8_t *may = s->mask + b * s->mask_batch;
    for (int64_t i = 0; i < s->keys; i++)
        for (int64_t t = 0; t < T; t += WIDE) {
            wide each = all_of(!s->mask || may[i] ? 0.0f : -__builtin_inff());
            if (s->mask && s->mask_row)
                for (int64_t l = 0; l < WIDE; l++)
                    each[l] = t + l >= s->queries || may[(t + l) * s->mask_row + i] ? 0.0f : -__builtin_inff();
            store(to + i * T + t, each);
        }
}

/* The softmax of each column of keys × queries. */
static void softmax(float *scores, const float *bar, float scale, int64_t keys, int64_t T) {
    for (int64_t t = 0; t < T; t += WIDE) {
        wide most = all_of(-__builtin_inff()), sum = {0};
        for (int64_t i = 0; i < keys; i++) {
            wide each = load(scores + i * T + t) * scale + load(bar + i * T + t);
            store(scores + i * T + t, each);
            most = larger(each, most);
        }
        for (int64_t i = 0; i < keys; i++) {
            wide power = choose(load(bar + i * T + t) == 0.0f, exponential(load(scores + i * T + t) - most), (wide){0});
            store(scores + i * T + t, power);
            sum += power;
        }
        sum = 1.0f / sum;
        for (int64_t i = 0; i < keys; i++) store(scores + i * T + t, load(scores + i * T + t) * sum);
    }
}

/* softmax(QKᵀ · scale)V of every head of every sentence. The weights are kept for the gradient with keys as rows, so that a
   wide vector holds many queries and no sum runs along one: batch × heads × keys × queries, these padded to a multiple of 16. */
int attend(const shape *s, const heads *query, const heads *key, const heads *value, const heads *out, float *weights) {
    int64_t T = up_to(s->queries, WIDE);
    float *bar = zeros((s->keys + s->heads * s->width) * T), *turned = bar + s->keys * T, *w = weights;
    if (!bar) return 1;
    for (int64_t b = 0; b < s->batch; b++) {
        if (!b || s->mask_batch) bars(s, b, T, bar);
        turn(head_of(query, b, 0), query->row, s->queries, s->heads * s->width, T, turned);
        for (int64_t h = 0; h < s->heads; h++, w += s->keys * T) {
            product(head_of(key, b, h), key->row, 1, turned + h * s->width * T, T, w, T, s->keys, s->width, T);
            softmax(w, bar, s->scale, s->keys, T);
            product(w, 1, T, head_of(value, b, h), value->row, head_of(out, b, h), out->row, s->queries, s->keys, s->value_width);
        }
    }
    free(bar);
    return 0;
}

/* The gradients of query, key and value. */
int attend_back(const shape *s, const heads *query, const heads *key, const heads *value, const float *weights, const heads *grad,
                const heads *grad_query, const heads *grad_key, const heads *grad_value) {
    int64_t T = up_to(s->queries, WIDE);
    float *slope = zeros((s->keys + s->heads * s->value_width) * T), *turned = slope + s->keys * T;
    const float *w = weights;
    if (!slope) return 1;
    for (int64_t b = 0; b < s->batch; b++) {
        turn(head_of(grad, b, 0), grad->row, s->queries, s->heads * s->value_width, T, turned);
        for (int64_t h = 0; h < s->heads; h++, w += s->keys * T) {
            const float *above = head_of(grad, b, h);
            product(w, T, 1, above, grad->row, head_of(grad_value, b, h), grad_value->row, s->keys, s->queries, s->value_width);
            product(head_of(value, b, h), value->row, 1, turned + h * s->value_width * T, T, slope, T, s->keys, s->value_width, T);
            for (int64_t t = 0; t < T; t += WIDE) {
                wide along = {0};
                for (int64_t i = 0; i < s->keys; i++) along += load(w + i * T + t) * load(slope + i * T + t);
                for (int64_t i = 0; i < s->keys; i++)
                    store(slope + i * T + t, load(w + i * T + t) * (load(slope + i * T + t) - along) * s->scale);
            }
            product(slope, 1, T, head_of(key, b, h), key->row, head_of(grad_query, b, h), grad_query->row, s->queries, s->keys, s->width);
            product(slope, T, 1, head_of(query, b, h), query->row, head_of(grad_key, b, h), grad_key->row, s->keys, s->queries, s->width);
        }
    }
    free(slope);
    return 0;
}

/* Attention of one position of every beam to what it reads: its past, or the memory of its sentence. `places` tells for each
   beam (stride `beam_step`) and position (stride `step`) the row of keys and values in which it lies, `mask` whether it may be
   read (NULL: all may). Widths are multiples of 16. */
int attend_rows(const float *query, int64_t query_row, const heads *key, const heads *value, const int64_t *places, int64_t beam_step,
                int64_t step, const uint8_t *mask, int64_t beams, int64_t first, int64_t length, int64_t heads, int64_t width,
                int64_t value_width, float scale, float *out) {
    int64_t T = up_to(length - first, WIDE);
    float *scores = zeros(heads * T);
    if (!scores) return 1;
    for (int64_t i = 0; i < heads * T; i++) scores[i] = -__builtin_inff();
    for (int64_t beam = 0; beam < beams; beam++, query += query_row, places += beam_step, out += heads * value_width) {
        for (int64_t t = first; t < length; t++) {
            const float *from = key->at + places[t * step] * key->batch + t * key->row;
            int may = !mask || mask[beam * length + t];
            for (int64_t h = 0; h < heads; h++) {
                wide sum = {0};
                for (int64_t i = 0; i < width; i += WIDE) sum += load(query + h * width + i) * load(from + h * key->head + i);
                scores[h * T + t - first] = may ? sum_of(sum) * scale : -__builtin_inff();
            }
        }
        for (int64_t h = 0; h < heads; h++) {
            wide most = load(scores + h * T), sum = {0};
            for (int64_t t = WIDE; t < T; t += WIDE) most = larger(load(scores + h * T + t), most);
            float highest = largest_of(most);
            for (int64_t t = 0; t < T; t += WIDE) {
                wide power = exponential(load(scores + h * T + t) - highest);
                store(scores + h * T + t, power);
                sum += power;
            }
            float total = sum_of(sum);
            for (int64_t i = 0; i < value_width; i += WIDE) {
                wide mix = {0};
                for (int64_t t = first; t < length; t++)
                    mix += scores[h * T + t - first] * load(value->at + places[t * step] * value->batch + t * value->row + h * value->head + i);
                store(out + h * value_width + i, mix / total);
            }
            for (int64_t t = length - first; t < T; t++) scores[h * T + t] = -__builtin_inff();
        }
    }
    free(scores);
    return 0;
}

/* ---- the best next tokens ---------------------------------------------------------------------------------------------- */

/* Of each row of logits the `count` most probable tokens, best first, and the logarithms of their probabilities; of equals the
   first. Tokens before `begin` are never taken. Where there are too few, -inf. `tops` has room for width / 64 + 1. */
void best_next(const float *logits, int64_t rows, int64_t width, int64_t begin, int64_t count, float *tops, float *scores,
               int64_t *tokens) {
    enum { BLOCK = 64 };
    int64_t even = width / BLOCK * BLOCK;
    for (int64_t row = 0; row < rows; row++, logits += width, scores += count, tokens += count) {
        float highest = -__builtin_inff();
        for (int64_t c = 0; c < even; c += BLOCK) {
            wide most = load(logits + c);
            for (int64_t i = WIDE; i < BLOCK; i += WIDE) most = larger(load(logits + c + i), most);
            tops[c / BLOCK] = largest_of(most);
            highest = tops[c / BLOCK] <= highest ? highest : tops[c / BLOCK];
        }
        tops[even / BLOCK] = __builtin_inff();
        for (int64_t c = even; c < width; c++) highest = logits[c] <= highest ? highest : logits[c];
        wide sum = {0};
        for (int64_t c = 0; c < even; c += WIDE) sum += exponential(load(logits + c) - highest);
        double total = sum_of(sum);
        for (int64_t c = even; c < width; c++) total += __builtin_exp((double)logits[c] - (double)highest);
        double below = (double)highest + __builtin_log(total);
        for (int64_t i = 0; i < count; i++) scores[i] = -__builtin_inff(), tokens[i] = 0;
        for (int64_t c = 0; c < width; c += BLOCK) {
            if (tops[c / BLOCK] <= scores[count - 1]) continue;
            for (int64_t token = c; token < c + BLOCK && token < width; token++) {
                float each = logits[token];
                if (!(each > scores[count - 1]) || token < begin) continue;
                int64_t place = count - 1;
                for (; place > 0 && scores[place - 1] < each; place--) scores[place] = scores[place - 1], tokens[place] = tokens[place - 1];
                scores[place] = each;
                tokens[place] = token;
            }
        }
        for (int64_t i = 0; i < count; i++) scores[i] = (float)((double)scores[i] - below);
    }
}
