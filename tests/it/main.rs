mod derive;
mod ui;
