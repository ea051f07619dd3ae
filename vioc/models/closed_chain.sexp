; The closed-chain device of [T] Fig. 6: Listing 1 with the bracket after (Name "O") put right.
(mechanical-system
  (name "closed_chain")
  (gravity 0 0 -9.81)
  (ry "J" (name "J")
    (tz -0.5 (name "I") (mass 1))
    (tz -1.0
      (ry "H" (name "H")
        (tz -1.0 (name "G") (mass 1))
        (tz -2.0 (name "O2")))))
  (tx -1.5
    (ry "K" (name "K")
      (tz -1.0 (name "L") (mass 1))
      (tz -2.0
        (ry "M" (name "M")
          (tz -0.5 (name "N") (mass 1))
          (tz -1.0 (name "O"))))))
  (tx 1.5
    (ry "A" (name "A")
      (tz -1.0 (name "B") (mass 1))
      (tz -2.0
        (ry "C" (name "C")
          (tz -0.375 (name "D") (mass 1))
          (tz -0.75
            (ry "E" (name "E")
              (tz -0.5 (name "F") (mass 1))
              (tz -1.0 (name "G2"))))))))
  (point-constraint "G" "G2" (1 0 0))
  (point-constraint "G" "G2" (0 0 1))
  (point-constraint "O" "O2" (1 0 0))
  (point-constraint "O" "O2" (0 0 1)))
