mod cell;
mod offers;
mod plans;
mod properties;
mod serving;
mod world;
