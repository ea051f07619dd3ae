; A cart on a rail along x with a point mass on a pole; theta = 0 is upright (unstable).
(SYSTEM
  (NAME "cart_pole")
  (GRAVITY 0 0 -9.81)
  (TX "x" (NAME "cart") (MASS 1)
    (RY "theta"
      (TZ 0.5 (NAME "pole") (MASS 0.3))))
  (JOINT-FORCE "x" "force"))
