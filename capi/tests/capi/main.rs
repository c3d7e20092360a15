//! The library as C, C++ and Python see it.

mod build;
mod cases;
mod header;
mod model;
mod smoke;
