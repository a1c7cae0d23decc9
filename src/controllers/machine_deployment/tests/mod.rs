mod bounds;
mod cases;
mod drive;
mod transcripts;
