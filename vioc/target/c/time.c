/* Times of single calls on this machine over repeated recorded samples: median, 99.9 %, worst. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "target.h"
#include "target_samples.h"

#ifndef CALLS
#define CALLS 100000
#endif

static double took[CALLS];

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void report(const char *what)
{
    qsort(took, CALLS, sizeof took[0], by_size);
    printf("%-10s median %.3f us, 99.9 %% %.3f us, worst %.3f us\n", what, took[CALLS / 2], took[CALLS - 1 - CALLS / 1000],
           took[CALLS - 1]);
}

static void copy(int n, const double *from, target_real *to)
{
    int i;
    for (i = 0; i < n; ++i) to[i] = (target_real)from[i];
}

int main(void)
{
    int i, status = 0;
#if STEPS
    target_real x[TARGET_NX], next[TARGET_NX], multipliers[TARGET_NM + 1], v[TARGET_NU + 1];
    for (i = 0; i < CALLS; ++i) {
        double before;
        copy(TARGET_NX, step_x[i % STEPS], x);
        copy(TARGET_NU, step_u[i % STEPS], v);
        before = now();
        status |= target_step(step_k[i % STEPS], x, v, next, multipliers);
        took[i] = now() - before;
    }
    report("step");
#endif
#if SAMPLES
    {
        static double later[CALLS];
        target_state state;
        target_real begin[TARGET_NX], y[TARGET_NY], u[TARGET_NU], applied[TARGET_NU];
        copy(TARGET_NX, start_x[0], begin);
        for (i = 0; i < CALLS; ++i) {
            double before, between;
            if (i % SAMPLES == 0) {
                target_start(&state, begin);
                state.k = first_k;
            }
            copy(TARGET_NY, sample_y[i % SAMPLES], y);
            copy(TARGET_NU, sample_u[i % SAMPLES], applied);
            before = now();
            status |= target_output(&state, y, u);
            between = now();
            status |= target_advance(&state, applied);
            later[i] = now() - between;
            took[i] = between - before;
        }
        report("output");
        for (i = 0; i < CALLS; ++i) took[i] = later[i];
        report("advance");
    }
#endif
    return status;
}
