/* Numbers of several evaluations side by side, LANES of them, which code of `lanes.py` works on.
   What that gains is said in many.c. */

#include <math.h>
#include <string.h>

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef unsigned long long marks __attribute__((vector_size(LANES * sizeof(double))));

#define ALL(x) ((lanes){0} + (x))

/* pi/2 to 118 bits; multiples below 2^20 of the first two parts are exact. Parts and polynomials are fdlibm's. */
#define HALF_PI 1.57079632673412561417e+00
#define MORE 6.07710050630396597660e-11
#define REST 2.02226624879595063154e-21
#define WIDE 1.0e6
#define ROUND 6755399441055744.0 /* 1.5 * 2^52 */

static void turned(const lanes *x, lanes *sine, lanes *cosine) {
  const lanes shifted = *x * 6.36619772367581382433e-01 + ROUND, n = shifted - ROUND;
  const lanes first = *x - n * HALF_PI, by = n * MORE, r = first - by, w = n * REST - ((first - r) - by);
  const lanes y = r - w, tail = (r - y) - w;
  const lanes z = y * y, v = z * y;
  lanes p = z * 1.58969099521155010221e-10 - 2.50507602534068634195e-08;
  p = z * p + 2.75573137070700676789e-06;
  p = z * p - 1.98412698298579493134e-04;
  p = z * p + 8.33333333332248946124e-03;
  const lanes s = y - ((z * (0.5 * tail - v * p) - tail) + v * 1.66666666666666324348e-01);
  lanes q = z * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
  q = z * q - 2.75573143513906633035e-07;
  q = z * q + 2.48015872894767294178e-05;
  q = z * q - 1.38888888888741095749e-03;
  q = z * q + 4.16666666666666019037e-02;
  const lanes half = 0.5 * z, one = 1.0 - half;
  const lanes c = one + (((1.0 - one) - half) + (z * z * q - y * tail));
  marks turns, odd, as, ac, su;
  memcpy(&turns, &shifted, sizeof turns); /* whose lowest bits are those of n */
  memcpy(&as, &s, sizeof as);
  memcpy(&ac, &c, sizeof ac);
  odd = -(turns & 1);
  su = ((as & ~odd) | (ac & odd)) ^ ((turns & 2) << 62);
  memcpy(sine, &su, sizeof su);
  su = ((ac & ~odd) | (as & odd)) ^ (((turns + 1) & 2) << 62);
  memcpy(cosine, &su, sizeof su);
  for (int i = 0; i < LANES; i++)
    if (!(fabs((*x)[i]) < WIDE)) (*sine)[i] = sin((*x)[i]), (*cosine)[i] = cos((*x)[i]);
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
