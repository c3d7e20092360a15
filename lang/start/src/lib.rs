//! `libmainspring_jan.a`: what a program needs that `mainspring jan build` has compiled. It has the runtime, the interpreter and the functions
//! that generated code calls, and no code generator.

pub use mainspring_native::mainspring_jan_main;
