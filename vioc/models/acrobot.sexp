; Two uniform rods of 1 m and 1 kg (I = 1/12), driven at the elbow; q1 = q2 = 0 is upright.
(SYSTEM
  (NAME "acrobot")
  (GRAVITY 0 0 -9.81)
  (RY "q1" (NAME "upper")
    (TZ 0.5 (NAME "upper-centre") (MASS 1 0.08333333333333333 0.08333333333333333 0))
    (TZ 1 (NAME "elbow")
      (RY "q2" (NAME "lower")
        (TZ 0.5 (NAME "lower-centre") (MASS 1 0.08333333333333333 0.08333333333333333 0))
        (TZ 1 (NAME "tip")))))
  (JOINT-FORCE "q2" "torque"))
