"""The built-in task of `gearshift demo`: handwritten digits, distorted, and four models of rising cost."""
