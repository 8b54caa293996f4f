module github.com/mcastlab/mcastlab

go 1.26

require pgregory.net/rapid v1.3.0
