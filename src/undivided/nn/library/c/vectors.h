/* What the kernels share: vectors of 16 floats, their arithmetic, memory, and what a function returns.

   Every kernel computes with one thread, on float32, and writes only into arrays that the caller gives. Rows are contiguous
   unless a stride says otherwise; strides count floats. A wide vector is 16 floats: the compiler maps it to what the machine has.
   The signatures stand a second time in signatures.py, for ctypes; a test compares both. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What a kernel that can fail returns. */
enum { OK = 0, NO_MEMORY = 1, BAD_INDEX = 2, UNSUPPORTED = 3 };

#define WIDE 16
typedef float wide __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int32_t wide_int __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef uint32_t float_bits __attribute__((may_alias));

static inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

static inline wide load(const float *from) { return *(const wide *)from; }
static inline void store(float *to, wide value) { *(wide *)to = value; }
static inline wide broadcast(float value) { return (wide){0} + value; }
static inline wide select_lanes(wide_int which, wide yes, wide no) {
    return (wide)(((wide_int)yes & which) | ((wide_int)no & ~which));
}
static inline wide lane_max(wide one, wide other) { return select_lanes(one <= other, other, one); } /* NaN in `one` stays */

static inline float horizontal_sum(wide value) {
    float sum = 0;
    for (int i = 0; i < WIDE; i++) sum += value[i];
    return sum;
}

static inline float horizontal_max(wide value) {
    float largest = value[0];
    for (int i = 1; i < WIDE; i++) largest = value[i] <= largest ? largest : value[i];
    return largest;
}

/* e^x of numbers up to 0, to within 2 units in the last place; NaN stays NaN, all below -87 give next to nothing. */
static inline wide exp_lanes(wide x) {
    x = select_lanes(x < -87.0f, broadcast(-87.0f), x);
    wide steps = select_lanes(x == x, x * 1.44269504f + 192.5f, broadcast(192.5f)); /* NaN is no whole number */
    wide_int exponent = __builtin_convertvector(steps, wide_int) - 192;              /* the nearest: the sum is positive */
    wide n = __builtin_convertvector(exponent, wide);
    wide r = x - n * 0.693359375f + n * 2.12194440e-4f, p = broadcast(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (wide)((exponent + 127) << 23);
}

/* Zeros in memory that begins where wide vectors are loaded best; NULL where there is none left. */
static inline float *allocate_zeros(int64_t count) {
    size_t size = (size_t)round_up(count > 0 ? count : 1, WIDE) * sizeof(float);
    float *zeros = aligned_alloc(4 * WIDE, size);
    if (zeros) memset(zeros, 0, size);
    return zeros;
}

/* Where the heads of a tensor lie: the first number, and strides. */
typedef struct {
    float *at;
    int64_t batch, row, head;
} head_view;
