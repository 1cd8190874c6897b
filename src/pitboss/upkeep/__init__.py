"""What a store needs done now and then, one small file per duty. Done by everybody if two at once do no harm, else by
the manager that leads, under its term."""
