"""Operations on a running server: control, swap, shadow, replan."""
