mod cell;
mod plans;
mod properties;
mod transcripts;
mod wire;
mod world;
