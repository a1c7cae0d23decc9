//! Yandex Cloud: a fake of its API, which Yandex Cloud's own client drives in a test.

#[cfg(test)]
mod client;
#[allow(dead_code, reason = "unit tests of the driver use the rest")]
mod fake;
mod world;

// For the fake.
use super::kit;

pub use self::world::World;
