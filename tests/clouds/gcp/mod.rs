//! Google Cloud: a fake of its API, which Google's own client drives in a test.

#[cfg(test)]
mod client;
mod fake;
#[cfg(test)]
mod slots;
#[cfg(test)]
mod tests;
#[allow(dead_code, reason = "the demo does not look into the fake")]
mod world;

pub use self::world::World;
