//! Plays the controllers against an API server in memory and a simulated cloud, on virtual time: to learn what a change will do before
//! it is made, and to test the controllers.

pub mod cloud;
pub mod play;
pub mod record;
