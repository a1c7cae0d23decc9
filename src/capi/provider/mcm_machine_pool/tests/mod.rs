mod around;
mod deletion;
mod members;
mod rules;
mod transcripts;
mod world;
