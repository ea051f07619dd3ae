/* Vectors of LANES evaluations side by side, for code that `lanes.py` generates. Their gain is given in many.c. */

#include <math.h>

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef unsigned long long marks __attribute__((vector_size(LANES * sizeof(double))));

#define ALL(x) ((lanes){0} + (x))

/* Sine and cosine of the C library: results of a sample do not depend on other lanes, and both cost as much as one. */
static inline void turned(const lanes *x, lanes *sine, lanes *cosine) {
  for (int i = 0; i < LANES; i++) (*sine)[i] = sin((*x)[i]), (*cosine)[i] = cos((*x)[i]);
}

/* Other functions are called lane by lane. */
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
