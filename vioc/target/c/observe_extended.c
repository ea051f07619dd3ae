/* x += L (y - g(x)) with L = P C' (C P C' + V)^-1, and P by Joseph's form. */
static int correct(target_state *s, const real *y)
{
    real e[NY], C[NY * NX], PC[NX * NY] = {0}, S[NY * NY], L[NX * NY], LV[NX * NY];
    real keep[NX * NX], half[NX * NX];
    int pivots[NY], i, j;
    innovation(s->x, y, e);
    if (!all_finite(NY, e)) return TARGET_NOT_FINITE; /* no measurement: the prediction is kept */
    sensors(s->x, C);
    add_product(NX, NX, NY, s->P, C, PC);
    multiply(NY, NX, NY, C, PC, S);
    for (i = 0; i < NY * NY; ++i) S[i] += noise[i];
    if (factor(NY, S, pivots)) return TARGET_SINGULAR;
    for (i = 0; i < NX * NY; ++i) L[i] = PC[i];
    for (i = 0; i < NX; ++i) solve(NY, S, pivots, L + i * NY);
    for (i = 0; i < NX; ++i)
        for (j = 0; j < NY; ++j) s->x[i] += L[i * NY + j] * e[j];
    multiply(NX, NY, NX, L, C, keep);
    for (i = 0; i < NX * NX; ++i) keep[i] = (i % (NX + 1) ? 0 : 1) - keep[i];
    multiply(NX, NX, NX, keep, s->P, half);
    multiply(NX, NY, NY, L, noise, LV);
    for (i = 0; i < NX * NX; ++i) s->P[i] = 0;
    add_product(NX, NX, NX, half, keep, s->P);
    add_product(NX, NY, NX, LV, L, s->P);
    return 0;
}

/* P = A P A' + W + B W_u B', made symmetric. */
static int predict(target_state *s, const real *u)
{
    real x_next[NX], A[NX * NX], B[NX * NU + 1], half[NX * NX], P[NX * NX], push[NX * NU + 1];
    const int status = target_linearize(s->k, s->x, u, x_next, A, B);
    int i, j;
    if (status & TARGET_SINGULAR || !all_finite(NX, x_next) || !all_finite(NX * NX, A)) return status | TARGET_UNSOLVED;
    for (i = 0; i < NX * NX; ++i) P[i] = disturbance[i];
    multiply(NX, NX, NX, A, s->P, half);
    add_product(NX, NX, NX, half, A, P);
    multiply(NX, NU, NU, B, input_noise, push);
    add_product(NX, NU, NX, push, B, P);
    for (i = 0; i < NX; ++i) {
        s->x[i] = x_next[i];
        for (j = 0; j < NX; ++j) s->P[i * NX + j] = (P[i * NX + j] + P[j * NX + i]) / 2;
    }
    return status;
}
