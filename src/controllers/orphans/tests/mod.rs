mod cell;
mod plans;
mod properties;
mod world;
