/* Numbers of several evaluations side by side, LANES of them, which code of `lanes.py` works on.
   What that gains is said in many.c. */

#include <math.h>

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef unsigned long long marks __attribute__((vector_size(LANES * sizeof(double))));

#define ALL(x) ((lanes){0} + (x))

/* The C library's own, so that a sample has the same bits beside others as by itself; both at once cost as one. */
static inline void turned(const lanes *x, lanes *sine, lanes *cosine) {
  for (int i = 0; i < LANES; i++) (*sine)[i] = sin((*x)[i]), (*cosine)[i] = cos((*x)[i]);
}

/* Of the rest one lane after the other. */
#define EACH(result, value)                            \
  lanes result;                                        \
  for (int i = 0; i < LANES; i++) (result)[i] = (value);

static inline lanes chosen(marks which, lanes a, lanes b) { return (lanes)(((marks)a & which) | ((marks)b & ~which)); }
static inline lanes absolute(lanes x) { return (lanes)((marks)x & 0x7fffffffffffffffULL); }
static inline lanes truth(marks x) { return (lanes)(x & (marks)ALL(1.0)); }
static inline int any(marks x) {
  unsigned long long found = 0;
  for (int i = 0; i < LANES; i++) found |= x[i];
  return found != 0;
}
