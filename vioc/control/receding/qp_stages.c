/* Linear-quadratic problem of a program of stages; follows qp_data.c and ../stages/riccati.c. */

#if QP_NM + QP_NE > 0

/* Values of rows at x, u -> h. */
static void QP_(values)(const QP_(data) *d, QP_REAL x[][QP_NX], QP_REAL u[][QP_NU], QP_REAL *h) {
  int k, i, j;
  (void)u;
  for (k = 0; k < d->steps; ++k) {
#if QP_NB > 0
    for (i = 0; i < QP_NB; ++i)
      h[k * QP_NM + i] = d->at[i] < QP_NX ? x[k][d->at[i]] : u[k][d->at[i] - QP_NX];
#endif
#if QP_NG > 0
    for (i = 0; i < QP_NG; ++i) {
      QP_REAL sum = 0;
      for (j = 0; j < QP_NX; ++j) sum += d->J[k][i][j] * x[k][j];
      for (j = 0; j < QP_NU; ++j) sum += d->J[k][i][QP_NX + j] * u[k][j];
      h[k * QP_NM + QP_NB + i] = sum;
    }
#endif
  }
  for (i = 0; i < QP_NE; ++i) {
    QP_REAL sum = 0;
    for (j = 0; j < QP_NX; ++j) sum += d->J_end[i][j] * x[d->steps][j];
    h[d->steps * QP_NM + i] = sum;
  }
  (void)j;
}

#endif

/* -- the linear-quadratic problem ------------------------------------------------------------------------------- */

/* (RH 7) backwards: gains and Cholesky factors. Returns 0 if there is no minimum. */
static int QP_(factor)(const QP_(data) *d, QP_(state) *s) {
  QP_REAL P[QP_NX][QP_PZ], W[QP_NX][QP_PZ], H[QP_NZ][QP_PZ], F[QP_NX][QP_PZ], G[QP_NU][QP_PZ];
  int i, j, l, stage;
  memset(P, 0, sizeof P);
  memset(F, 0, sizeof F);
  memset(H, 0, sizeof H);
  for (i = 0; i < QP_NX; ++i)
    for (j = 0; j < QP_NX; ++j) P[i][j] = d->H_end[i][j];
#if QP_NE > 0
  for (l = 0; l < QP_NE; ++l) {
    const QP_REAL w = s->weight[d->steps * QP_NM + l];
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NX; ++j) P[i][j] += w * d->J_end[l][i] * d->J_end[l][j];
  }
#endif
  for (stage = d->steps - 1; stage >= 0; --stage) {
    QP_REAL pushed[QP_PZ] = {0};
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NX; ++j) pushed[j] += P[i][j] * s->gap[stage][i];
    memcpy(s->pushed[stage], pushed, sizeof s->pushed[stage]);
    for (i = 0; i < QP_NX; ++i) memcpy(F[i], d->F[stage][i], sizeof d->F[stage][i]);
    for (i = 0; i < QP_NZ; ++i) memcpy(H[i], d->H[stage][i], sizeof d->H[stage][i]);
#if QP_NB > 0
    for (l = 0; l < QP_NB; ++l) H[d->at[l]][d->at[l]] += s->weight[stage * QP_NM + l];
#endif
#if QP_NG > 0
    for (l = 0; l < QP_NG; ++l) {
      const QP_REAL w = s->weight[stage * QP_NM + QP_NB + l], *a = d->J[stage][l];
      if (w == 0) continue;
      for (i = 0; i < QP_NZ; ++i)
        for (j = 0; j <= i; ++j) H[i][j] += w * a[i] * a[j];
    }
#endif
    if (!QP_(back)(QP_NX, QP_NU, QP_PZ, P[0], F[0], H[0], W[0], G[0], P[0], s->K[stage][0], s->L[stage][0])) return 0;
  }
  (void)l;
  return 1;
}

/* Gradient of the cost at s->x, s->u -> s->bent. */
static void QP_(bend)(const QP_(data) *d, QP_(state) *s) {
  int i, j, stage;
  for (stage = 0; stage < d->steps; ++stage)
    for (i = 0; i < QP_NZ; ++i) {
      QP_REAL sum = d->g[stage][i];
      for (j = 0; j < QP_NX; ++j) sum += d->H[stage][i][j] * s->x[stage][j];
      for (j = 0; j < QP_NU; ++j) sum += d->H[stage][i][QP_NX + j] * s->u[stage][j];
      s->bent[stage][i] = sum;
    }
  for (i = 0; i < QP_NX; ++i) {
    QP_REAL sum = d->g_end[i];
    for (j = 0; j < QP_NX; ++j) sum += d->H_end[i][j] * s->x[d->steps][j];
    s->bent_end[i] = sum;
  }
}

/* (RH 8) backwards, then forwards: the step to the minimum, s->dx, s->du, and of the rows, s->dh. */
static void QP_(direction)(const QP_(data) *d, QP_(state) *s, const QP_REAL *x0) {
  QP_REAL p[QP_NX], w[QP_NX], h[QP_NZ];
  int i, j, stage;
  memcpy(p, s->bent_end, sizeof p);
#if QP_NE > 0
  for (j = 0; j < QP_NE; ++j)
    for (i = 0; i < QP_NX; ++i) p[i] += s->slope[d->steps * QP_NM + j] * d->J_end[j][i];
#endif
  for (stage = d->steps - 1; stage >= 0; --stage) {
    for (i = 0; i < QP_NX; ++i) w[i] = p[i] + s->pushed[stage][i];
    for (j = 0; j < QP_NZ; ++j) h[j] = s->bent[stage][j];
#if QP_NB > 0
    for (i = 0; i < QP_NB; ++i) h[d->at[i]] += s->slope[stage * QP_NM + i];
#endif
#if QP_NG > 0
    for (i = 0; i < QP_NG; ++i)
      for (j = 0; j < QP_NZ; ++j) h[j] += s->slope[stage * QP_NM + QP_NB + i] * d->J[stage][i][j];
#endif
    QP_(linear)(QP_NX, QP_NU, d->F[stage][0], s->K[stage][0], s->L[stage][0], w, h, p, s->d[stage]);
  }
  for (i = 0; i < QP_NX; ++i) s->dx[0][i] = x0[i] - s->x[0][i];
  for (stage = 0; stage < d->steps; ++stage)
    QP_(forth)(QP_NX, QP_NU, d->F[stage][0], s->K[stage][0], s->d[stage], s->gap[stage], s->dx[stage], s->du[stage],
               s->dx[stage + 1]);
#if QP_NM + QP_NE > 0
  QP_(values)(d, s->dx, s->du, s->dh);
#endif
}

/* -- the solution ---------------------------------------------------------------------------------------------- */

/* Costates from the adjoint recursion for the multipliers s->y; returns the largest residual of stationarity by u. */
static QP_REAL QP_(adjoint)(const QP_(data) *d, QP_(state) *s) {
  QP_REAL left = 0, r[QP_NZ];
  int i, j, stage;
  QP_(bend)(d, s);
  memcpy(s->p[d->steps], s->bent_end, sizeof s->p[0]);
#if QP_NE > 0
  for (j = 0; j < QP_NE; ++j)
    for (i = 0; i < QP_NX; ++i) s->p[d->steps][i] += s->y[d->steps * QP_NM + j] * d->J_end[j][i];
#endif
  for (stage = d->steps - 1; stage >= 0; --stage) {
    memcpy(r, s->bent[stage], sizeof r);
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NZ; ++j) r[j] += d->F[stage][i][j] * s->p[stage + 1][i];
#if QP_NB > 0
    for (i = 0; i < QP_NB; ++i) r[d->at[i]] += s->y[stage * QP_NM + i];
#endif
#if QP_NG > 0
    for (i = 0; i < QP_NG; ++i)
      for (j = 0; j < QP_NZ; ++j) r[j] += s->y[stage * QP_NM + QP_NB + i] * d->J[stage][i][j];
#endif
    for (i = 0; i < QP_NX; ++i) s->p[stage][i] = r[i];
    for (i = QP_NX; i < QP_NZ; ++i) left = QP_ABS(r[i]) > left ? QP_ABS(r[i]) : left;
  }
  return left;
}

/* Takes a part of the step of states and inputs. */
static void QP_(advance)(const QP_(data) *d, QP_(state) *s, QP_REAL step) {
  int i, k;
  for (k = 0; k <= d->steps; ++k)
    for (i = 0; i < QP_NX; ++i) s->x[k][i] += step * s->dx[k][i];
  for (k = 0; k < d->steps; ++k) {
    for (i = 0; i < QP_NU; ++i) s->u[k][i] += step * s->du[k][i];
    for (i = 0; i < QP_NX; ++i) s->gap[k][i] *= 1 - step;
  }
}
