mod classes;
mod hand_over;
mod lone;
mod others;
mod paths;
mod refusals;
mod world;
