/* Between the matrix products of a layer: dropout, LayerNorm(x + Dropout(y)), max(0, x + bias). */

#include "vectors.h"

/* The random bytes of elements first … first + count of the mask of a seed: 8 a word, words numbered from 1 (SplitMix64).
   `out` has room for 16 more; what is asked for begins where the returned pointer shows. */
static const uint8_t *random_bytes(uint64_t seed, int64_t first, int64_t count, uint8_t *out) {
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
    uint8_t scratch[BLOCK + 16];
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t size = count - start < BLOCK ? count - start : BLOCK;
        const uint8_t *bytes = random_bytes(seed, start, size, scratch);
        const float *from = x + start;
        float *to = out + start;
        if (other)
            for (int64_t i = 0; i < size; i++) to[i] = other[start + i] + (bytes[i] >= threshold ? from[i] * scale : 0.0f);
        else
            for (int64_t i = 0; i < size; i++) to[i] = bytes[i] >= threshold ? from[i] * scale : 0.0f;
    }
}

/* `sum` receives x + Dropout(y), `stats` mean and 1/deviation of each row. threshold 0: no dropout. */
int add_norm(const float *x, const float *y, int64_t rows, int64_t width, uint64_t seed, int32_t threshold, float scale,
             const float *gain, const float *shift, float epsilon, float *sum, float *out, float *stats) {
    uint8_t *scratch = malloc((size_t)width + 16);
    if (!scratch) return NO_MEMORY;
    for (int64_t row = 0; row < rows; row++) {
        const float *one = x + row * width, *other = y + row * width;
        float *both = sum + row * width, *result = out + row * width, total = 0, squares = 0;
        if (threshold) {
            const uint8_t *bytes = random_bytes(seed, row * width, width, scratch);
            for (int64_t i = 0; i < width; i++) both[i] = one[i] + (bytes[i] >= threshold ? other[i] * scale : 0.0f);
        } else {
            for (int64_t i = 0; i < width; i++) both[i] = one[i] + other[i];
        }
        for (int64_t i = 0; i < width; i++) total += both[i];
        float mean = total / (float)width;
        for (int64_t i = 0; i < width; i++) squares += (both[i] - mean) * (both[i] - mean);
        float inverse_deviation = 1.0f / __builtin_sqrtf(squares / (float)width + epsilon);
        for (int64_t i = 0; i < width; i++) result[i] = (both[i] - mean) * inverse_deviation * gain[i] + shift[i];
        stats[2 * row] = mean;
        stats[2 * row + 1] = inverse_deviation;
    }
    free(scratch);
    return OK;
}

/* Gradients of x, y, gain and shift; those of gain and shift are added to what is there. */
int add_norm_backward(const float *grad, const float *sum, const float *stats, int64_t rows, int64_t width, uint64_t seed,
                      int32_t threshold, float scale, const float *gain, float *grad_x, float *grad_y, float *grad_gain,
                      float *grad_shift) {
    uint8_t *scratch = malloc((size_t)width + 16);
    if (!scratch) return NO_MEMORY;
    for (int64_t row = 0; row < rows; row++) {
        const float *above = grad + row * width, *both = sum + row * width;
        float *below = grad_x + row * width, mean = stats[2 * row], inverse_deviation = stats[2 * row + 1], plain = 0, along = 0;
        for (int64_t i = 0; i < width; i++) {
            float unit = (both[i] - mean) * inverse_deviation, slope = above[i] * gain[i];
            plain += slope;
            along += slope * unit;
            grad_gain[i] += above[i] * unit;
            grad_shift[i] += above[i];
        }
        plain /= (float)width;
        along /= (float)width;
        for (int64_t i = 0; i < width; i++) {
            float unit = (both[i] - mean) * inverse_deviation;
            below[i] = (above[i] * gain[i] - plain - unit * along) * inverse_deviation;
        }
        if (threshold) {
            const uint8_t *bytes = random_bytes(seed, row * width, width, scratch);
            float *other = grad_y + row * width;
            for (int64_t i = 0; i < width; i++) other[i] = bytes[i] >= threshold ? below[i] * scale : 0.0f;
        }
    }
    free(scratch);
    return OK;
}

void bias_relu(float *x, const float *bias, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++) {
            float sum = x[row * width + i] + bias[i];
            x[row * width + i] = sum < 0.0f ? 0.0f : sum;
        }
}

/* The gradient before the non-linearity; that of the bias is added to what is there. */
void bias_relu_backward(const float *grad, const float *out, float *below, float *grad_bias, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++) {
            float slope = out[row * width + i] > 0.0f ? grad[row * width + i] : 0.0f;
            below[row * width + i] = slope;
            grad_bias[i] += slope;
        }
}
