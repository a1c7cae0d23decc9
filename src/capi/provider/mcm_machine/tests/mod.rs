mod around;
mod members;
mod rules;
mod transcripts;
mod world;
