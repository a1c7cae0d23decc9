mod paths;
mod refusals;
mod world;
