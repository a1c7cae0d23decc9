//! OpenStack: a fake of its services. `hack/openstack` runs the services themselves, for the tests of the driver.

#[allow(dead_code, reason = "unit tests of the driver use the rest")]
mod fake;
#[allow(dead_code, reason = "unit tests of the driver use the rest")]
mod schema;
mod world;

// For the fake.
use super::kit;

#[allow(unused_imports, reason = "flavours of clusters have a pool")]
pub use self::fake::POOL_ID;
pub use self::world::World;
