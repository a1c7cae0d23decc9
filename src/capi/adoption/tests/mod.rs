mod classes;
mod others;
mod paths;
mod refusals;
mod world;
