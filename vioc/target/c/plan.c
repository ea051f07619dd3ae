/* First plan, and constant data of its program. */
static void fresh(target_state *s)
{
    int i, k;
    memset(&s->program, 0, sizeof s->program);
    memset(&s->work, 0, sizeof s->work);
    s->program.steps = PLANNED;
    for (i = 0; i < QP_NB; ++i) s->program.at[i] = entries[i];
    for (i = 0; i < QP_NM; ++i) {
        s->program.linear[i] = price_linear[i];
        s->program.square[i] = price_square[i];
    }
    for (i = 0; i < QP_NE; ++i) {
        s->program.linear_end[i] = price_linear_end[i];
        s->program.square_end[i] = price_square_end[i];
    }
    for (k = 0; k <= PLANNED; ++k)
        for (i = 0; i < NX; ++i) s->plan_x[k][i] = first_x[k][i];
    for (k = 0; k < PLANNED; ++k)
        for (i = 0; i < NU; ++i) s->plan_u[k][i] = first_u[k][i];
    s->prepared = s->missed = 0;
}

/* Program about the plan of sample s->k: linearized steps, quadratic cost, limits. */
static int prepare(target_state *s)
{
    target_qp_data *d = &s->program;
    real next[NX], A[NX * NX], B[NX * NU], h[QP_SOME(QP_NM)], h_end[QP_SOME(QP_NE)];
    int status = 0, k, i, j;
    for (k = 0; k < PLANNED; ++k) {
        const real *z = s->plan_x[k], *v = s->plan_u[k], *r = references[REFERENCE(s->k + k)];
        status |= target_linearize(s->k + k, z, v, next, A, B);
        for (i = 0; i < NX; ++i) {
            for (j = 0; j < NX; ++j) d->F[k][i][j] = A[i * NX + j];
            for (j = 0; j < NU; ++j) d->F[k][i][NX + j] = B[i * NU + j];
        }
        difference(s->plan_x[k + 1], next, d->c[k]);
        stage(z, v, r, &d->H[k][0][0], d->g[k], h, &d->J[k][0][0]);
        for (i = 0; i < QP_NM; ++i) {
            d->lower[k][i] = row_lower[k][i] - h[i];
            d->upper[k][i] = row_upper[k][i] - h[i];
        }
    }
    last(s->plan_x[PLANNED], references[REFERENCE(s->k + PLANNED)], &d->H_end[0][0], d->g_end, h_end, &d->J_end[0][0]);
    for (i = 0; i < QP_NE; ++i) {
        d->lower_end[i] = end_lower[i] - h_end[i];
        d->upper_end[i] = end_upper[i] - h_end[i];
    }
    s->prepared = 1;
    return status & TARGET_SINGULAR;
}

/* Improve the plan by one Newton step from the estimate; keep it if the program is not solved. */
static int planned(target_state *s, real *u)
{
    real away[NX];
    int status = s->prepared ? 0 : prepare(s), found, k, i;
    difference(s->plan_x[0], s->x, away);
    found = target_qp_solve(&s->program, &s->work, away, PLAN_ITERATIONS, PLAN_TOLERANCE, 0);
    if (!(PLAN_TOLERANCE > 0)) /* fixed number of iterations: check whether they suffice */
        found |= !(s->work.apart <= PLAN_LOOSE && s->work.left <= PLAN_LOOSE);
    if (status || found || !all_finite((PLANNED + 1) * NX, &s->work.x[0][0]) || !all_finite(PLANNED * NU, &s->work.u[0][0])) {
        status |= TARGET_NO_PLAN;
        ++s->missed;
    } else {
        for (k = 0; k < PLANNED; ++k) {
            for (i = 0; i < NX; ++i) s->plan_x[k + 1][i] += s->work.x[k + 1][i];
            for (i = 0; i < NU; ++i) s->plan_u[k][i] += s->work.u[k][i];
        }
        for (i = 0; i < NX; ++i) s->plan_x[0][i] = s->x[i];
    }
    for (i = 0; i < NU; ++i) {
        u[i] = s->plan_u[0][i];
        if (u[i] < plan_least[i]) u[i] = plan_least[i];
        if (u[i] > plan_most[i]) u[i] = plan_most[i];
    }
    return status;
}

/* Shift the plan by one step, repeat the last input, and prepare the program. */
static int ahead(target_state *s)
{
    real next[NX], multipliers[NM + 1];
    int k, i, status;
    for (k = 0; k < PLANNED; ++k)
        for (i = 0; i < NX; ++i) s->plan_x[k][i] = s->plan_x[k + 1][i];
    for (k = 0; k < PLANNED - 1; ++k)
        for (i = 0; i < NU; ++i) s->plan_u[k][i] = s->plan_u[k + 1][i];
    status = target_step(s->k + PLANNED - 1, s->plan_x[PLANNED - 1], s->plan_u[PLANNED - 1], next, multipliers);
    if (!status && all_finite(NX, next))
        for (i = 0; i < NX; ++i) s->plan_x[PLANNED][i] = next[i];
    return prepare(s);
}
