mod around;
mod members;
mod membership;
mod rules;
mod transcripts;
mod world;
