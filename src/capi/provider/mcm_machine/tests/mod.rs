mod rules;
mod transcripts;
mod world;
