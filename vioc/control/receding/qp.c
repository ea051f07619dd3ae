/* Interior-point method for a program of stages; follows qp_stages.c. qp_data.c says why it is written by hand. */

/* -- rows ------------------------------------------------------------------------------------------------------ */

#if QP_NM + QP_NE > 0

/* Writes limits of all rows to s->row; returns the number of inequalities. */
static int QP_(read)(const QP_(data) *d, QP_(state) *s) {
  const int rows = d->steps * QP_NM + QP_NE;
  int r, inequalities = 0;
  for (r = 0; r < rows; ++r) {
    QP_(row) *o = &s->row[r];
#if QP_NM > 0
    if (r < d->steps * QP_NM) {
      o->limit[0] = d->lower[r / QP_NM][r % QP_NM];
      o->limit[1] = d->upper[r / QP_NM][r % QP_NM];
      o->linear = d->linear[r % QP_NM];
      o->square = d->square[r % QP_NM];
    }
#endif
#if QP_NE > 0
    if (r >= d->steps * QP_NM) {
      const int i = r - d->steps * QP_NM;
      o->limit[0] = d->lower_end[i];
      o->limit[1] = d->upper_end[i];
      o->linear = d->linear_end[i];
      o->square = d->square_end[i];
    }
#endif
    o->has = (o->limit[0] > -QP_NONE ? 1 : 0) + (o->limit[1] < QP_NONE ? 2 : 0);
    if (o->limit[0] == o->limit[1]) o->has = 4;
    inequalities += o->has == 1 || o->has == 2 || o->has == 3;
  }
  return inequalities;
}

/* Quantities of a side that are constant during an iteration. */
static void QP_(elastic)(const QP_(row) *w, QP_(side) *o) {
  o->beta = 0;
#if QP_SOFT
  if (w->linear >= 0) {
    o->under = 1 / (o->v + o->e * w->square);
    o->left = w->linear + w->square * o->e - o->l - o->v;
    o->beta = o->e * o->under;
  }
#else
  (void)w;
#endif
  o->give = 1 / (o->t + o->l * o->beta);
}

/* alpha of (RH 6): the change of e alone. */
static QP_REAL QP_(aside)(const QP_(row) *w, const QP_(side) *o, QP_REAL aim, int second) {
#if QP_SOFT
  if (w->linear >= 0) return (aim - second * o->de * o->dv - o->e * (o->v + o->left)) * o->under;
#else
  (void)w, (void)o, (void)aim, (void)second;
#endif
  return 0;
}

/* (RH 6): weights of rows and their linear terms, for complementarity `aim`, with the second-order term of the last
   direction if `second` is 1. */
static void QP_(condense)(const QP_(data) *d, QP_(state) *s, QP_REAL aim, int second) {
  const int rows = d->steps * QP_NM + QP_NE;
  int r, b;
  for (r = 0; r < rows; ++r) {
    const QP_(row) *w = &s->row[r];
    QP_REAL weight = 0, slope = 0;
    if (w->has == 4) {
      weight = 1 / s->give;
      slope = s->y[r] + (s->h[r] - w->limit[0]) / s->give;
    } else
      for (b = 0; b < 2; ++b)
        if (w->has & (1 << b)) {
          QP_(side) *o = &s->side[r][b];
          QP_REAL l;
          if (!second) QP_(elastic)(w, o);
          l = o->t + o->r + QP_(aside)(w, o, aim, second);
          l = o->l + (aim - second * o->dl * o->dt - o->l * l) * o->give;
          weight += o->l * o->give;
          slope += b ? l : -l;
        }
    s->weight[r] = weight;
    s->slope[r] = slope;
  }
}

/* Directions of all sides for a step of the rows; returns the largest relative decrease. */
static QP_REAL QP_(directions)(const QP_(data) *d, QP_(state) *s, QP_REAL aim, int second) {
  const int rows = d->steps * QP_NM + QP_NE;
  QP_REAL most = 0;
  int r, b;
  for (r = 0; r < rows; ++r) {
    const QP_(row) *w = &s->row[r];
    if (w->has == 4) continue;
    for (b = 0; b < 2; ++b)
      if (w->has & (1 << b)) {
        QP_(side) *o = &s->side[r][b];
        const QP_REAL aside = QP_(aside)(w, o, aim, second), nearer = (b ? -s->dh[r] : s->dh[r]) + o->r + aside;
        o->dl = (aim - second * o->dl * o->dt - o->l * (o->t + nearer)) * o->give;
        o->dt = nearer + o->beta * o->dl;
        if (-o->dl > most * o->l) most = -o->dl / o->l;
        if (-o->dt > most * o->t) most = -o->dt / o->t;
#if QP_SOFT
        if (w->linear >= 0) {
          o->de = aside + o->beta * o->dl;
          o->dv = w->square * o->de - o->dl + o->left;
          if (-o->de > most * o->e) most = -o->de / o->e;
          if (-o->dv > most * o->v) most = -o->dv / o->v;
        }
#endif
      }
  }
  return most;
}

/* Mean complementarity after a step along the directions. */
static QP_REAL QP_(complementarity)(const QP_(data) *d, QP_(state) *s, QP_REAL step) {
  const int rows = d->steps * QP_NM + QP_NE;
  QP_REAL sum = 0;
  int r, b, count = 0;
  for (r = 0; r < rows; ++r) {
    const QP_(row) *w = &s->row[r];
    if (w->has == 4) continue;
    for (b = 0; b < 2; ++b)
      if (w->has & (1 << b)) {
        const QP_(side) *o = &s->side[r][b];
        sum += (o->t + step * o->dt) * (o->l + step * o->dl);
        ++count;
        if (QP_SOFT && w->linear >= 0) {
          sum += (o->e + step * o->de) * (o->v + step * o->dv);
          ++count;
        }
      }
  }
  s->sides = count;
  return count ? sum / (QP_REAL)count : 0;
}
#endif

/* Largest entry of gradients and of Hessians' diagonals, the weight of equations. */
static QP_REAL QP_(steepest)(const QP_(data) *d) {
  QP_REAL most = 0;
  int i, k;
  for (k = 0; k < d->steps; ++k)
    for (i = 0; i < QP_NZ; ++i) {
      const QP_REAL a = QP_ABS(d->g[k][i]), b = QP_ABS(d->H[k][i][i]);
      most = a > most ? a : most;
      most = b > most ? b : most;
    }
  for (i = 0; i < QP_NX; ++i) {
    const QP_REAL a = QP_ABS(d->g_end[i]), b = QP_ABS(d->H_end[i][i]);
    most = a > most ? a : most;
    most = b > most ? b : most;
  }
  return most > 0 ? most : 1;
}

#if QP_NM + QP_NE > 0

/* Magnitude of the cost's terms at s->x, s->u, with gradient s->bent, and of penalties. */
static QP_REAL QP_(terms)(const QP_(data) *d, const QP_(state) *s) {
  QP_REAL sum = 0;
  int i, k;
  for (k = 0; k < d->steps; ++k)
    for (i = 0; i < QP_NZ; ++i) {
      const QP_REAL g = d->g[k][i], z = i < QP_NX ? s->x[k][i] : s->u[k][i - QP_NX];
      sum += QP_ABS(z) * (QP_ABS(s->bent[k][i] - g) / 2 + QP_ABS(g));
    }
  for (i = 0; i < QP_NX; ++i) {
    const QP_REAL g = d->g_end[i];
    sum += QP_ABS(s->x[d->steps][i]) * (QP_ABS(s->bent_end[i] - g) / 2 + QP_ABS(g));
  }
#if QP_SOFT
  for (k = 0; k < d->steps * QP_NM + QP_NE; ++k)
    if (s->row[k].linear >= 0)
      for (i = 0; i < 2; ++i)
        sum += s->side[k][i].e * (s->row[k].linear + s->row[k].square * s->side[k][i].e / 2);
#endif
  return sum;
}

/* Smallest cost of an input in one step, at half the range of its limits, or at 1: the unit below which costs are
   negligible. */
static QP_REAL QP_(least)(const QP_(data) *d) {
  QP_REAL least = QP_MOST;
  int i, k;
  for (k = 0; k < d->steps; ++k) {
    QP_REAL range[QP_NU];
    for (i = 0; i < QP_NU; ++i) range[i] = 1;
#if QP_NB > 0
    for (i = 0; i < QP_NB; ++i) {
      const QP_REAL low = d->lower[k][i], high = d->upper[k][i];
      if (d->at[i] >= QP_NX && low > -QP_NONE && high < QP_NONE) range[d->at[i] - QP_NX] = (high - low) / 2;
    }
#endif
    for (i = 0; i < QP_NU; ++i) {
      const QP_REAL a = d->H[k][QP_NX + i][QP_NX + i] / 2 * range[i] * range[i];
      if (a > 0 && a < least) least = a;
    }
  }
  return least < QP_MOST ? least : 0;
}

/* Whether the gap and the residuals of rows are within the tolerance. */
static int QP_(near)(const QP_(data) *d, QP_(state) *s, QP_REAL tolerance) {
  const QP_REAL apart = s->mu * (QP_REAL)s->sides;
  s->unit = s->size + QP_(terms)(d, s);
  s->apart = apart > 0 ? apart / s->unit : apart;
  return s->apart <= tolerance && s->left <= tolerance;
}

/* Takes a part of the step. */
static void QP_(move)(const QP_(data) *d, QP_(state) *s, QP_REAL step) {
  const int rows = d->steps * QP_NM + QP_NE;
  int r, b;
  for (r = 0; r < rows; ++r) {
    if (s->row[r].has == 4) s->y[r] += step * (s->h[r] + s->dh[r] - s->row[r].limit[0]) / s->give;
    else
      for (b = 0; b < 2; ++b)
        if (s->row[r].has & (1 << b)) {
          QP_(side) *o = &s->side[r][b];
          o->t += step * o->dt;
          o->l += step * o->dl;
#if QP_SOFT
          o->e += step * o->de;
          o->v += step * o->dv;
#endif
          o->r *= 1 - step;
        }
  }
  QP_(advance)(d, s, step);
  QP_(values)(d, s->x, s->u, s->h);
  s->left *= 1 - step;
}

/* Solves the program without inequalities, with a few multiplier steps for equations; returns whether that is the
   solution. */
static int QP_(unlimited)(const QP_(data) *d, QP_(state) *s, const QP_REAL *x0, QP_REAL tolerance, int warm) {
  const int rows = d->steps * QP_NM + QP_NE;
  int r, pass, equations = 0, kept;
  for (r = 0; r < rows; ++r) {
    const int equation = s->row[r].has == 4;
    if (!warm || !equation) s->y[r] = 0;
    s->weight[r] = equation ? 1 / s->give : 0;
    equations += equation;
  }
  kept = QP_(factor)(d, s);
  for (pass = 0; kept && pass < (equations ? 3 : 1); ++pass) {
    for (r = 0; r < rows; ++r)
      s->slope[r] = s->row[r].has == 4 ? s->y[r] + (s->h[r] - s->row[r].limit[0]) / s->give : 0;
    if (pass) QP_(bend)(d, s);
    QP_(direction)(d, s, x0);
    QP_(move)(d, s, 1);
    memset(s->pushed, 0, sizeof s->pushed); /* the dynamics are satisfied now */
  }
  s->size = QP_(least)(d);
  if (kept) {
    QP_(bend)(d, s);
    s->start = s->size += QP_(terms)(d, s);
  } else { /* there is no minimum without the limits */
    int i, j;
    memcpy(s->x[0], x0, sizeof s->x[0]);
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NX; ++j) s->gap[0][i] += d->F[0][i][j] * x0[j];
  }
  QP_(values)(d, s->x, s->u, s->h);
  for (r = 0; r < rows; ++r) {
    const QP_(row) *w = &s->row[r];
    if (w->has == 4) kept &= QP_ABS(s->h[r] - w->limit[0]) <= tolerance * (1 + QP_ABS(w->limit[0]));
    else kept &= (!(w->has & 1) || s->h[r] >= w->limit[0]) && (!(w->has & 2) || s->h[r] <= w->limit[1]);
  }
  return kept;
}

/* Slacks and multipliers of the first iterate, well inside the limits; from derivatives if there is no minimum without
   limits. */
static void QP_(begin)(const QP_(data) *d, QP_(state) *s, int inequalities) {
  const int rows = d->steps * QP_NM + QP_NE;
  const QP_REAL count = (QP_REAL)(inequalities ? inequalities : 1);
  const QP_REAL product = s->start > 0 ? QP_BEGIN * s->start / count : s->steep / 100;
  int r, b;
  for (r = 0; r < rows; ++r)
    for (b = 0; b < 2; ++b)
      if (s->row[r].has != 4 && s->row[r].has & (1 << b)) {
        const QP_REAL limit = s->row[r].limit[b], inside = b ? limit - s->h[r] : s->h[r] - limit;
        QP_(side) *o = &s->side[r][b];
        const QP_REAL range = s->row[r].has == 3 ? (s->row[r].limit[1] - s->row[r].limit[0]) / 2 : 1;
        const QP_REAL room = QP_ROOM * range;
        memset(o, 0, sizeof *o);
        o->t = inside > room ? inside : room;
        o->l = product / o->t;
        if (QP_SOFT && s->row[r].linear >= 0) { /* e v = t l, with v the price of e minus l: no residual */
          const QP_REAL half = (s->row[r].linear - o->l) / 2;
          const QP_REAL root = QP_SQRT(half * half + s->row[r].square * product);
          o->e = half > 0 ? product / (half + root) : (root - half) / s->row[r].square;
          o->v = product / o->e;
        }
        o->r = inside + o->e - o->t;
      }
}

/* One predictor and corrector step towards a gap of at least `lowest` units; after a short step, one step to the
   centre. Returns 0 if there is no minimum. */
static int QP_(iterate)(const QP_(data) *d, QP_(state) *s, const QP_REAL *x0, int inequalities,
                        QP_REAL lowest) {
  const int second = !(s->step < QP_SHORT);
  QP_REAL most = 0, aim;
  QP_(condense)(d, s, 0, 0);
  if (!QP_(factor)(d, s)) return 0;
  QP_(direction)(d, s, x0);
  if (inequalities) {
    most = QP_(directions)(d, s, 0, 0);
    aim = QP_(complementarity)(d, s, most > 1 ? 1 / most : 1) / s->mu;
    aim = second ? aim * aim * aim * s->mu : s->mu;
    if (!(aim * (QP_REAL)s->sides > lowest * s->unit)) aim = lowest * s->unit / (QP_REAL)s->sides;
    QP_(condense)(d, s, aim, second);
    QP_(direction)(d, s, x0);
    most = QP_(directions)(d, s, aim, second);
  }
  s->step = most > QP_FRACTION ? QP_FRACTION / most : 1;
  QP_(move)(d, s, s->step);
  QP_(bend)(d, s);
  s->mu = QP_(complementarity)(d, s, 0);
  ++s->done;
  return 1;
}
#endif

QP_API int QP_(solve)(const QP_(data) *d, QP_(state) *s, const QP_REAL *x0, int iterations, QP_REAL tolerance,
                      int warm) {
  int code = 0;
#if QP_NM + QP_NE > 0
  const int rows = d->steps * QP_NM + QP_NE;
  const QP_REAL lowest = tolerance / 10 > QP_FLOOR ? tolerance / 10 : QP_FLOOR; /* keeps weights small */
  int r, inequalities;
#endif
  s->steep = QP_(steepest)(d);
  s->size = s->start = s->apart = s->left = 0;
  s->done = 0;
  memset(s->x, 0, sizeof s->x);
  memset(s->u, 0, sizeof s->u);
  memcpy(s->gap, d->c, sizeof s->gap);
  memcpy(s->bent, d->g, sizeof s->bent);
  memcpy(s->bent_end, d->g_end, sizeof s->bent_end);
#if QP_NM + QP_NE > 0
  inequalities = QP_(read)(d, s);
  s->give = QP_GIVE / s->steep;
  memset(s->h, 0, sizeof s->h);
  memset(s->side, 0, sizeof s->side);
  if (!QP_(unlimited)(d, s, x0, tolerance, warm) || !(tolerance > 0)) {
    QP_(begin)(d, s, inequalities);
    s->step = 1;
    s->mu = QP_(complementarity)(d, s, 0);
    s->left = 1;
    QP_(bend)(d, s);
    while (!(QP_(near)(d, s, tolerance) && tolerance > 0) && s->done < iterations)
      if (!QP_(iterate)(d, s, x0, inequalities, lowest)) {
        code = 2;
        break;
      }
    for (r = 0; r < rows; ++r) {
      const int has = s->row[r].has;
      if (has != 4) s->y[r] = (has & 2 ? s->side[r][1].l : 0) - (has & 1 ? s->side[r][0].l : 0);
    }
    if (!code) code = tolerance > 0 && !(s->apart <= tolerance && s->left <= tolerance);
  }
#else
  (void)iterations, (void)tolerance, (void)warm;
  if (!QP_(factor)(d, s)) return 2;
  QP_(direction)(d, s, x0);
  QP_(advance)(d, s, 1);
#endif
  return QP_(adjoint)(d, s) <= QP_MOST ? code : 3;
}
