/* Attention of whole, short sequences, and its gradient. */

#include "vectors.h"

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
    int64_t batch, heads, queries, keys, width, value_width; /* both widths: multiples of 16 */
    const uint8_t *mask;                                     /* NULL: all may attend */
    int64_t mask_batch, mask_row;
    float scale;
} attention_shape;

static inline float *head_at(const head_view *all, int64_t b, int64_t h) { return all->at + b * all->batch + h * all->head; }

/* `rows` × `width` → `width` × `rows`, these padded. All heads of a sentence at once: they lie side by side, and what is written
   in single numbers must not be read at once in wide vectors, which would wait for each. */
static void transpose(const float *from, int64_t row, int64_t rows, int64_t width, int64_t padded, float *to) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++) to[i * padded + r] = from[r * row + i];
}

/* keys × queries: 0 where a query may attend to a key, -inf elsewhere; queries that are none may. */
static void mask_to_bias(const attention_shape *s, int64_t b, int64_t T, float *to) {
    const uint8_t *may = s->mask + b * s->mask_batch;
    for (int64_t i = 0; i < s->keys; i++)
        for (int64_t t = 0; t < T; t += WIDE) {
            wide each = broadcast(!s->mask || may[i] ? 0.0f : -__builtin_inff());
            if (s->mask && s->mask_row)
                for (int64_t l = 0; l < WIDE; l++)
                    each[l] = t + l >= s->queries || may[(t + l) * s->mask_row + i] ? 0.0f : -__builtin_inff();
            store(to + i * T + t, each);
        }
}

/* The softmax of each column of keys × queries. */
static void softmax_columns(float *scores, const float *bias, float scale, int64_t keys, int64_t T) {
    for (int64_t t = 0; t < T; t += WIDE) {
        wide most = broadcast(-__builtin_inff()), sum = {0};
        for (int64_t i = 0; i < keys; i++) {
            wide each = load(scores + i * T + t) * scale + load(bias + i * T + t);
            store(scores + i * T + t, each);
            most = lane_max(each, most);
        }
        for (int64_t i = 0; i < keys; i++) {
            wide power = select_lanes(load(bias + i * T + t) == 0.0f, exp_lanes(load(scores + i * T + t) - most), (wide){0});
            store(scores + i * T + t, power);
            sum += power;
        }
        sum = 1.0f / sum;
        for (int64_t i = 0; i < keys; i++) store(scores + i * T + t, load(scores + i * T + t) * sum);
    }
}

/* softmax(QKᵀ · scale)V of every head of every sentence. The weights are kept for the gradient with keys as rows, so that a
   wide vector holds many queries and no sum runs along one: batch × heads × keys × queries, these padded to a multiple of 16. */
int attend(const attention_shape *s, const head_view *query, const head_view *key, const head_view *value, const head_view *out,
           float *weights) {
    int64_t T = round_up(s->queries, WIDE);
    float *bias = allocate_zeros((s->keys + s->heads * s->width) * T), *transposed = bias + s->keys * T, *w = weights;
    if (!bias) return NO_MEMORY;
    for (int64_t b = 0; b < s->batch; b++) {
        if (!b || s->mask_batch) mask_to_bias(s, b, T, bias);
        transpose(head_at(query, b, 0), query->row, s->queries, s->heads * s->width, T, transposed);
        for (int64_t h = 0; h < s->heads; h++, w += s->keys * T) {
            product(head_at(key, b, h), key->row, 1, transposed + h * s->width * T, T, w, T, s->keys, s->width, T);
            softmax_columns(w, bias, s->scale, s->keys, T);
            product(w, 1, T, head_at(value, b, h), value->row, head_at(out, b, h), out->row, s->queries, s->keys, s->value_width);
        }
    }
    free(bias);
    return OK;
}

/* The gradients of query, key and value. */
int attend_backward(const attention_shape *s, const head_view *query, const head_view *key, const head_view *value,
                    const float *weights, const head_view *grad, const head_view *grad_query, const head_view *grad_key,
                    const head_view *grad_value) {
    int64_t T = round_up(s->queries, WIDE);
    float *slope = allocate_zeros((s->keys + s->heads * s->value_width) * T), *transposed = slope + s->keys * T;
    const float *w = weights;
    if (!slope) return NO_MEMORY;
    for (int64_t b = 0; b < s->batch; b++) {
        transpose(head_at(grad, b, 0), grad->row, s->queries, s->heads * s->value_width, T, transposed);
        for (int64_t h = 0; h < s->heads; h++, w += s->keys * T) {
            const float *above = head_at(grad, b, h);
            product(w, T, 1, above, grad->row, head_at(grad_value, b, h), grad_value->row, s->keys, s->queries, s->value_width);
            product(head_at(value, b, h), value->row, 1, transposed + h * s->value_width * T, T, slope, T, s->keys, s->value_width,
                    T);
            for (int64_t t = 0; t < T; t += WIDE) {
                wide along = {0};
                for (int64_t i = 0; i < s->keys; i++) along += load(w + i * T + t) * load(slope + i * T + t);
                for (int64_t i = 0; i < s->keys; i++)
                    store(slope + i * T + t, load(w + i * T + t) * (load(slope + i * T + t) - along) * s->scale);
            }
            product(slope, 1, T, head_at(key, b, h), key->row, head_at(grad_query, b, h), grad_query->row, s->queries, s->keys,
                    s->width);
            product(slope, T, 1, head_at(query, b, h), query->row, head_at(grad_key, b, h), grad_key->row, s->keys, s->queries,
                    s->width);
        }
    }
    free(slope);
    return OK;
}
