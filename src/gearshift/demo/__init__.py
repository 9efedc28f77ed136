"""The built-in task of `gearshift demo`: distorted handwritten digits, and four models."""
