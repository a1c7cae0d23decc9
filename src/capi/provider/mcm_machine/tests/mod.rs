mod around;
mod members;
mod membership;
mod reads;
mod rules;
mod transcripts;
mod world;
