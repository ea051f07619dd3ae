/* Many rollouts with the step of LANES samples defined before this text, with NX, NU, NP, NM and NWORK:
   step (x, (u, t, dt, parameters), x_next, multipliers, error, work). A lane whose rollout has ended, or stopped
   at a step that was not solved, continues with the next rollout.

   Written by hand, like chord.c and lanes.c, which it uses, because 64 rollouts one after the other in loops.c take
   3.5, 2.3, 2.5 and 2.9 times as long for 1, 3, 10 and 40 links (eight lanes, one core). */

#include <stdlib.h>

#define ALIGNED(p) ((lanes *)(((unsigned long long)(p) + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes)))

/* Continues `count` rollouts, with indices `rows` in `in` and `out`, from their steps `at` to step `end`; for each it
   writes the step reached, and the error if it stopped before the end. in: u, t, dt, at places too, and
   parameters of these; stride: of each from rollout to rollout and from step to step. out: X (rollout, steps + 1),
   whose rows `at` are starts, multipliers (rollout, steps). */
__attribute__((visibility("default"))) int many(long long count, const long long *rows, long long end, long long steps,
                                                double tolerance, const double *const *in,
                                                const long long *stride, double *const *out, long long *at,
                                                double *error) {
  static const long long sizes[] = {NU, 1, 1, NP};
  const long long size = 2 * NX + NU + 2 + NP + NM + 1 + NWORK;
  void *block = calloc(size + 1, sizeof(lanes));
  if (!block) return -1;
  lanes *now = ALIGNED(block), *next = now + NX, *given = next + NX, *mu = given + NU + 2 + NP, *off = mu + NM;
  lanes *work = off + 1, *swap;
  const lanes *const of[] = {given, given + NU, given + NU + 1, given + NU + 2};
  long long place[LANES], j = 0;
  for (int i = 0; i < LANES; i++) place[i] = -1;
  for (;;) {
    int busy = -1;
    for (int i = 0; i < LANES; i++) {
      if (place[i] < 0) {
        while (j < count && at[j] >= end) error[j++] = 0;
        if (j == count) continue;
        place[i] = j;
        error[j] = 0;
        const double *start = out[0] + (rows[j] * (steps + 1) + at[j]) * NX;
        for (int a = 0; a < NX; a++) now[a][i] = start[a];
        j++;
      }
      lanes *to = given;
      for (int b = 0; b < 4; to += sizes[b++]) {
        const long long row = b < 3 ? rows[place[i]] : place[i];
        const double *from = in[b] + row * stride[2 * b] + at[place[i]] * stride[2 * b + 1];
        for (int a = 0; a < sizes[b]; a++) to[a][i] = from[a];
      }
      busy = i;
    }
    if (busy < 0) break;
    for (int i = 0; i < LANES; i++) { /* a lane without a rollout repeats another's */
      if (place[i] >= 0) continue;
      for (int a = 0; a < NX; a++) now[a][i] = now[a][busy];
      for (int a = 0; a < NU + 2 + NP; a++) given[a][i] = given[a][busy];
    }
    step(now, of, next, mu, off, work);
    for (int i = 0; i < LANES; i++) {
      const long long p = place[i];
      if (p < 0) continue;
      double *x = out[0] + (rows[p] * (steps + 1) + at[p] + 1) * NX, *m = out[1] + (rows[p] * steps + at[p]) * NM;
      double sum = 0;
      for (int a = 0; a < NX; a++) sum += 0 * (x[a] = next[a][i]); /* 0, or NaN if one is not finite */
      for (int a = 0; a < NM; a++) m[a] = mu[a][i];
      const int good = (*off)[i] <= tolerance && sum == 0;
      at[p] += good;
      if (good && at[p] < end) continue;
      error[p] = good ? 0 : (*off)[i];
      place[i] = -1;
    }
    swap = now, now = next, next = swap;
  }
  free(block);
  return 0;
}
