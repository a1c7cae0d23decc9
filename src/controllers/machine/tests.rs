mod crash;
mod create;
mod delete;
mod health;
mod world;
