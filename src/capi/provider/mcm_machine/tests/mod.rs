mod around;
mod in_place;
mod members;
mod membership;
mod reads;
mod rules;
mod transcripts;
mod world;
