/* What a training step on a CPU spends between its large matrix products, each in one pass over memory.

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

/* The same of bfloat16 numbers, the upper halves of floats: a row at a time is computed with in `room`, and rounded to the nearest. */
void softmax_loss_half(uint16_t *logits, const int64_t *labels, int64_t rows, int64_t width, float smoothing, float *totals,
                       double *found, float *room) {
    bits_of_float *bits = (bits_of_float *)room;
    for (int64_t row = 0; row < rows; row++) {
        uint16_t *each = logits + row * width;
        for (int64_t i = 0; i < width; i++) bits[i] = (uint32_t)each[i] << 16;
        softmax_row(room, labels[row], width, smoothing, totals + row, found);
        for (int64_t i = 0; i < width; i++) {
            uint32_t number = bits[i], is_nan = (number & 0x7fffffffu) > 0x7f800000u;
            each[i] = (uint16_t)(is_nan ? 0x7fc0u : (number + 0x7fffu + (number >> 16 & 1u)) >> 16);
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

/* Attention of one new position of every beam to its past. `places` tells for each beam and position the row in which it lies:
   keys and values are rows × room × (heads · width). Widths are multiples of 16. */
int attend_past(const float *query, int64_t query_row, const float *keys, const float *values, int64_t room, const int64_t *places,
                int64_t beams, int64_t first, int64_t length, int64_t heads, int64_t width, int64_t value_width, float scale, float *out) {
    int64_t T = up_to(length - first, WIDE);
    float *scores = zeros(heads * T);
    if (!scores) return 1;
    for (int64_t i = 0; i < heads * T; i++) scores[i] = -__builtin_inff();
    for (int64_t beam = 0; beam < beams; beam++, query += query_row, places += length, out += heads * value_width) {
        for (int64_t t = first; t < length; t++) {
            const float *key = keys + (places[t] * room + t) * heads * width;
            for (int64_t h = 0; h < heads; h++) {
                wide sum = {0};
                for (int64_t i = h * width; i < (h + 1) * width; i += WIDE) sum += load(query + i) * load(key + i);
                scores[h * T + t - first] = sum_of(sum) * scale;
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
                    mix += scores[h * T + t - first] * load(values + ((places[t] * room + t) * heads + h) * value_width + i);
                store(out + h * value_width + i, mix / total);
            }
            for (int64_t t = length - first; t < T; t++) scores[h * T + t] = -__builtin_inff();
        }
    }
    free(scores);
    return 0;
}
